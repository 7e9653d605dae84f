#include "tools/toy_engine/corpus.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"

namespace specd::toy {
namespace {

namespace fs = std::filesystem;

std::string_view Trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// Bytes of "- ", "* ", "12. " or "> " at the start of a line; 0 if there is none.
size_t BulletSize(std::string_view line) {
  for (std::string_view bullet : {"- ", "* ", "+ ", "> "}) {
    if (StartsWith(line, bullet)) return bullet.size();
  }
  size_t digits = 0;
  while (digits < line.size() && line[digits] >= '0' && line[digits] <= '9') ++digits;
  const bool numbered = digits > 0 && StartsWith(line.substr(digits), ". ");
  return numbered ? digits + 2 : 0;
}

// "[text](target)" at the start of `text`: the size of the whole in *link_size, and the text.
std::string_view LinkText(std::string_view text, size_t* link_size) {
  *link_size = 0;
  const size_t middle = text.find("](");
  if (middle == std::string_view::npos) return {};
  const size_t end = text.find(')', middle);
  const size_t next_open = text.find('[', 1);
  if (end == std::string_view::npos || next_open < middle) return {};
  *link_size = end + 1;
  return text.substr(1, middle - 1);
}

// The line without emphasis, code marks and link targets.
std::string WithoutInlineMarks(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size();) {
    const std::string_view rest = line.substr(i);
    size_t link_size = 0;
    if (rest.front() == '[') {
      const std::string_view label = LinkText(rest, &link_size);
      if (link_size > 0) text += WithoutInlineMarks(label);
    }
    if (link_size > 0) {
      i += link_size;
    } else if (rest.front() == '`') {
      i += 1;
    } else if (StartsWith(rest, "**")) {
      i += 2;
    } else {
      text += rest.front();
      i += 1;
    }
  }
  return text;
}

// Takes the lines of a document one by one and puts passages together.
class PassageBuilder {
 public:
  void AddLine(std::string_view line) {
    line = Trim(line);
    if (StartsWith(line, "```") || StartsWith(line, "~~~")) {
      in_code_ = !in_code_;
      EndParagraph();
    } else if (in_code_ || SkipComment(line)) {
      return;
    } else if (line.empty() || line.front() == '|' || StartsWith(line, "---")) {
      EndParagraph();
    } else if (line.front() == '#') {
      EndPassage();
    } else {
      AddText(line);
    }
  }

  std::vector<std::string> Finish() {
    EndPassage();
    return std::move(passages_);
  }

 private:
  bool SkipComment(std::string_view line) {
    if (StartsWith(line, "<!--")) in_comment_ = true;
    if (!in_comment_) return false;
    in_comment_ = line.find("-->") == std::string_view::npos;
    return true;
  }

  void AddText(std::string_view line) {
    const size_t bullet_size = BulletSize(line);
    if (bullet_size > 0) EndParagraph();
    if (!paragraph_.empty()) paragraph_ += ' ';
    paragraph_ += WithoutInlineMarks(Trim(line.substr(bullet_size)));
  }

  void EndParagraph() {
    if (paragraph_.empty()) return;
    if (!passage_.empty()) passage_ += '\n';
    passage_ += std::exchange(paragraph_, {});
    if (passage_.size() >= kPassageSizeBytes) passages_.push_back(std::exchange(passage_, {}));
  }

  void EndPassage() {
    EndParagraph();
    if (!passage_.empty()) passages_.push_back(std::exchange(passage_, {}));
  }

  bool in_code_ = false;
  bool in_comment_ = false;
  std::string paragraph_;
  std::string passage_;
  std::vector<std::string> passages_;
};

bool IsSkippedFolder(const fs::path& path) {
  const std::string name = path.filename().string();
  return StartsWith(name, ".") || StartsWith(name, "build");
}

absl::StatusOr<std::vector<std::string>> FilesInFolder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;  // an entry that vanished is neither a folder nor a file
    if (entry->is_directory(ignored) && IsSkippedFolder(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->path().extension() == ".md" && entry->is_regular_file(ignored)) {
      files.push_back(entry->path().string());
    }
  }
  if (error) {
    return absl::NotFoundError(fmt::format("corpus: {}: {}", folder, error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> FilesOfPattern(const std::string& pattern) {
  std::vector<std::string> files;
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return files;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(fmt::format("corpus: cannot read {}", path));
  return text.str();
}

}  // namespace

std::vector<std::string> PassagesOf(std::string_view markdown) {
  PassageBuilder builder;
  while (!markdown.empty()) {
    const size_t end = std::min(markdown.find('\n'), markdown.size());
    builder.AddLine(markdown.substr(0, end));
    markdown.remove_prefix(std::min(end + 1, markdown.size()));
  }
  return builder.Finish();
}

absl::StatusOr<std::vector<std::string>> ReadPassages(const std::vector<std::string>& paths) {
  std::vector<std::string> passages;
  for (const std::string& path : paths) {
    std::error_code ignored;  // a path that cannot be looked at is no folder; glob reports it
    absl::StatusOr<std::vector<std::string>> files =
        fs::is_directory(path, ignored) ? FilesInFolder(path) : FilesOfPattern(path);
    if (!files.ok()) return files.status();
    if (files->empty()) {
      return absl::NotFoundError(fmt::format("corpus: no document matches {}", path));
    }
    for (const std::string& file : *files) {
      absl::StatusOr<std::string> text = ReadFile(file);
      if (!text.ok()) return text.status();
      for (std::string& passage : PassagesOf(*text)) passages.push_back(std::move(passage));
    }
  }
  if (passages.empty()) {
    return absl::InvalidArgumentError(
        "corpus: the documents hold no prose (only code, tables or headings); name others");
  }
  return passages;
}

}  // namespace specd::toy
