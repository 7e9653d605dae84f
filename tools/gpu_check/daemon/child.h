// A program that a check starts, talks to in lines, and kills: the daemon, or an engine.
//
// What it prints, on either output, is kept. It is killed when the Child goes, and by the kernel
// when the thread that made it ends, however that comes. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "ipc/base/unique_fd.h"

namespace specd {

class Child {
 public:
  // NAME=VALUE, each; before what is in this process's environment.
  using Environment = std::vector<std::string>;

  // `name` is what it is called in errors.
  Child(std::string name, const std::vector<std::string>& command,
        const Environment& environment = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // True once it has printed `text` behind what was awaited before; false where it ends, or
  // patience does, without.
  bool AwaitText(const std::string& text, int patience_ms);
  // Takes what it has printed by now, so that its pipe has room; it can still be awaited.
  void TakePrinted();
  // What it has printed by now is awaited no more.
  void SkipPrinted();
  // A line on its standard input.
  void SendLine();
  void Signal(int number) const;
  // Waits for its end; kills it when patience is over. As waitpid has it, -1 where it was killed.
  int AwaitEnd(int patience_ms);
  void Kill();

  bool IsRunning();
  // Nothing more comes of it: it has ended, or is about to.
  bool has_closed_output() const { return has_closed_output_; }
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  // The last line that it has printed.
  std::string LastLine() const;

 private:
  // Reads what there is, for as long as that at most. False at the end of its output.
  bool Read(int timeout_ms);

  const std::string name_;
  pid_t pid_ = -1;
  int status_ = -1;  // once it has ended
  UniqueFd input_;
  UniqueFd output_;
  std::string text_;
  size_t awaited_ = 0;  // of text_
  bool has_closed_output_ = false;
};

}  // namespace specd
