#include "tools/toy_engine/corpus.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace specd::toy {
namespace {

using Passages = std::vector<std::string>;

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
    CHECK(*ReadPassages({folder.path()}) == Passages{"B.", "1", "2", "3", "4", "5", "A."});
    CHECK(*ReadPassages({folder.Of("docs/a.md"), folder.Of("*.md")}) == Passages{"A.", "B."});
  }

  TEST_CASE("a path that gives nothing is an error that names it") {
    const TemporaryFolder folder;
    folder.Write("empty.md", "# Only a heading\n");
    for (const std::string& path : {folder.Of("none.md"), folder.Of("x*.md")}) {
      const auto passages = ReadPassages({path});
      REQUIRE_FALSE(passages.ok());
      CHECK(std::string(passages.status().message()).find(path) != std::string::npos);
    }
    CHECK_FALSE(ReadPassages({folder.Of("empty.md")}).ok());
  }
}

}  // namespace
}  // namespace specd::toy
