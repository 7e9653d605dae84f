// The roles that an engine has bound, as the library counts them before it sends a record.
#include "daemon/client/draft_arguments.h"

#include <doctest/doctest.h>

namespace specd {
namespace {

TEST_SUITE("unit") {
  // Bug: a list that another binding had dropped still counted, so the daemon and not the library
  // refused a tree, with another error.
  TEST_CASE("bound roles: a list of children drops its sister in the other memory") {
    for (const int first : {SPECD_DRAFT_NEXT_CHILD, SPECD_DRAFT_NEXT_SIBLING}) {
      CAPTURE(first);
      const int second = SPECD_DRAFT_NEXT_CHILD + SPECD_DRAFT_NEXT_SIBLING - first;
      BoundRoles bound;
      bound.Note(first, true);
      CHECK_FALSE(bound.has_tree());
      bound.Note(second, true);
      CHECK(bound.has_tree());
      bound.Note(first, false);
      CHECK_FALSE(bound.has_tree());
      bound.Note(second, false);
      CHECK(bound.has_tree());
      // Other roles lie where they like.
      bound.Note(SPECD_TARGET_ROWS, true);
      CHECK(bound.has_tree());
      bound.Note(second, true);
      CHECK_FALSE(bound.has_tree());
      bound.Note(SPECD_DRAFT_PARENTS, false);
      CHECK(bound.has_tree());
    }
  }
}

}  // namespace
}  // namespace specd
