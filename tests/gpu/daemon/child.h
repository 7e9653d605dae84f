// Child is a program that a check starts, talks to in lines, and kills: the daemon, or an engine.
//
// The child's output, on either descriptor, is kept. The destructor kills the child. If the thread
// that made the child ends in any other way, the kernel kills it. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "ipc/base/unique_fd.h"

namespace specd {

class Child {
 public:
  // NAME=VALUE each. They take precedence over this process's environment.
  using Environment = std::vector<std::string>;

  // Errors call the child `name`.
  Child(std::string name, const std::vector<std::string>& command,
        const Environment& environment = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // True once the child has printed `text` after the text that was awaited before. False if the
  // child ends, or patience_ms pass, without it.
  bool AwaitText(const std::string& text, int patience_ms);
  // Takes the child's output so far, so that its pipe has room. The output can still be awaited.
  void TakePrinted();
  // Stops awaiting the output so far.
  void SkipPrinted();
  // Sends a line to the child's standard input.
  void SendLine();
  void Signal(int number) const;
  // Waits for the child's end, and kills the child after patience_ms. Returns the status of
  // waitpid, or -1 if the child was killed.
  int AwaitEnd(int patience_ms);
  void Kill();

  bool IsRunning();
  // True if the child has ended or is about to: no more output comes.
  bool has_closed_output() const { return has_closed_output_; }
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  // The last line that the child has printed.
  std::string LastLine() const;

 private:
  // Reads the output that there is, for timeout_ms at most. False at the end of the output.
  bool Read(int timeout_ms);

  const std::string name_;
  pid_t pid_ = -1;
  int status_ = -1;  // valid after the end
  UniqueFd input_;
  UniqueFd output_;
  std::string text_;
  size_t awaited_ = 0;  // bytes of text_
  bool has_closed_output_ = false;
};

}  // namespace specd
