#include "tools/toy_engine/corpus.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace specd::toy {
namespace {

namespace fs = std::filesystem;
using Passages = std::vector<std::string>;

// A folder of its own for one test case, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "specd_corpus_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  std::string Path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

TEST_SUITE("unit") {
  TEST_CASE("lines of a paragraph are joined, paragraphs are lines") {
    CHECK(PassagesOf("One\ntwo.\n\nThree.\n") == Passages{"One two.\nThree."});
    CHECK(PassagesOf("") == Passages{});
  }

  TEST_CASE("code, tables, headings, rules and comments are left out") {
    CHECK(PassagesOf("Before.\n```c\nint x; # no heading\n```\nAfter.\n") ==
          Passages{"Before.\nAfter."});
    CHECK(PassagesOf("Before.\n| a | b |\n|---|---|\n| 1 | 2 |\nAfter.") ==
          Passages{"Before.\nAfter."});
    CHECK(PassagesOf("<!-- not\n\nfor readers -->\nText.") == Passages{"Text."});
    CHECK(PassagesOf("A.\n\n---\n\nB.") == Passages{"A.\nB."});
  }

  TEST_CASE("a heading ends a passage") {
    CHECK(PassagesOf("# Title\nFirst.\n## Next\nSecond.\n") == Passages{"First.", "Second."});
  }

  TEST_CASE("a long passage ends with its paragraph") {
    const std::string paragraph(kPassageSizeBytes, 'x');
    CHECK(PassagesOf(paragraph + "\n\nnext\n\n" + paragraph) ==
          Passages{paragraph, "next\n" + paragraph});
  }

  TEST_CASE("list items are lines without their bullets") {
    CHECK(PassagesOf("- one\n  more\n* two\n12. three\n> four\n") ==
          Passages{"one more\ntwo\nthree\nfour"});
    CHECK(PassagesOf("1.5 is a number, -x is not an item") ==
          Passages{"1.5 is a number, -x is not an item"});
  }

  TEST_CASE("inline marks go, text stays") {
    CHECK(PassagesOf("**Bold** and `code` and [a `link`](docs/a.md), x[i] (y)") ==
          Passages{"Bold and code and a link, x[i] (y)"});
    CHECK(PassagesOf("a[0] and [text](b)") == Passages{"a[0] and text"});
  }

  TEST_CASE("folders, files and patterns") {
    const TemporaryFolder folder;
    folder.Write("b.md", "B.");
    folder.Write("docs/a.md", "A.");
    folder.Write("docs/notes.txt", "no Markdown");
    folder.Write(".git/x.md", "hidden");
    folder.Write("build/x.md", "built");
    for (const char* name : {"1", "5", "3", "2", "4"}) {
      folder.Write(std::string("docs/") + name + ".md", name);
    }
    CHECK(*ReadPassages({folder.Path()}) == Passages{"B.", "1", "2", "3", "4", "5", "A."});
    CHECK(*ReadPassages({folder.Path("docs/a.md"), folder.Path("*.md")}) == Passages{"A.", "B."});
  }

  TEST_CASE("a path that gives nothing is an error that names it") {
    const TemporaryFolder folder;
    folder.Write("empty.md", "# Only a heading\n");
    for (const std::string& path : {folder.Path("none.md"), folder.Path("x*.md")}) {
      const auto passages = ReadPassages({path});
      REQUIRE_FALSE(passages.ok());
      CHECK(std::string(passages.status().message()).find(path) != std::string::npos);
    }
    CHECK_FALSE(ReadPassages({folder.Path("empty.md")}).ok());
  }
}

}  // namespace
}  // namespace specd::toy
