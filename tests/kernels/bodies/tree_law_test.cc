// Enumeration shows that the law of the output equals the target's for drafts that are trees
// (CONTRACT §10, "Exact"), and that each mistake with siblings moves the law.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/bodies/enumeration.h"

namespace specd {
namespace {

constexpr double kExact = 1e-9;
constexpr double kVisible = 0.005;

using Kinds = std::vector<DraftKind>;
constexpr DraftKind kFixed = DraftKind::kOneHot;
constexpr DraftKind kDrawn = DraftKind::kSampled;
constexpr DraftKind kRest = DraftKind::kSampledRest;

// A tree by the children of a node at each depth, breadth first. `group` has the kinds of siblings.
struct Shape {
  std::vector<int> parents;
  Kinds kinds;
};
Shape ShapeOf(const std::vector<int>& widths, const Kinds& group) {
  Shape shape;
  std::vector<int> level = {kRoot};
  for (const int width : widths) {
    std::vector<int> next;
    for (const int parent : level) {
      for (int child = 0; child < width; ++child) {
        next.push_back(int(shape.parents.size()));
        shape.parents.push_back(parent);
        shape.kinds.push_back(width == 1 && group[0] == kFixed ? group.back()
                                                               : group[size_t(child)]);
      }
    }
    level = next;
  }
  return shape;
}

ModelOptions WithTree(ModelOptions options, const Shape& shape) {
  options.parents = shape.parents;
  options.kinds = shape.kinds;
  options.max_draft = int32_t(shape.parents.size());
  return options;
}

const std::vector<VerifyMethod> kAll = {VerifyMethod::kExactMatch, VerifyMethod::kTree,
                                        VerifyMethod::kTraversal, VerifyMethod::kTargetOnly};
const std::vector<VerifyMethod> kWithQ = {VerifyMethod::kTree, VerifyMethod::kTraversal};

// The same trees and rows under several methods, and under several seeds of the rows.
void CheckLaw(ModelOptions options, const Shape& shape, const std::vector<VerifyMethod>& methods) {
  options = WithTree(options, shape);
  for (const VerifyMethod method : methods) {
    options.method = method;
    int64_t num_cells = 0;
    int64_t num_narrow_cells = 0;
    int64_t num_kernel_runs = 0;
    int most_rounds = 0;
    double worst = 0;
    for (const uint64_t first = options.seed; options.seed < first + 3; ++options.seed) {
      CAPTURE(options.seed);
      CAPTURE(static_cast<int>(method));
      Enumeration enumeration(options, {});
      worst = std::max(worst, enumeration.Run());
      most_rounds = std::max(most_rounds, enumeration.most_rounds());
      num_cells += enumeration.num_cells();
      num_narrow_cells += enumeration.num_narrow_cells();
      num_kernel_runs += enumeration.num_kernel_runs();
    }
    options.seed -= 3;
    MESSAGE("method ", static_cast<int>(method), ", V = ", options.vocab_size, ", ",
            options.max_draft, " nodes: ", num_cells, " cells, ", num_narrow_cells, " too narrow, ",
            num_kernel_runs, " kernel runs, total variation ", worst);
    CHECK(worst < kExact);
    CHECK(num_kernel_runs > num_cells);
    CHECK(most_rounds >= 2);
    // Rounding grows with every leaf that falls.
    CHECK(num_narrow_cells * 2 <= num_cells);
  }
}

double WorstDistance(ModelOptions options, const Shape& shape, const Fault& fault) {
  double worst = 0;
  options = WithTree(options, shape);
  for (options.seed = 20; options.seed < 26; ++options.seed) {
    worst = std::max(worst, Enumeration(options, fault).Run());
  }
  return worst;
}

TEST_SUITE("exact") {
  TEST_CASE("trees: the expected accepted tokens of published sets, as fractions") {
    struct Line {
      std::string name;
      oracle::Probabilities p;
      oracle::Probabilities q;
      std::vector<int> widths;
      // tree with, tree rest, traversal with, traversal rest, tree mixed, traversal mixed; below 0:
      // not in the table.
      std::vector<double> accepted;
    };
    const oracle::Probabilities a_p = {1.0 / 3, 2.0 / 3};
    const oracle::Probabilities a_q = {2.0 / 3, 1.0 / 3};
    const oracle::Probabilities b_p = {.5, .3, .2};
    const oracle::Probabilities b_q = {.2, .3, .5};
    const oracle::Probabilities e_p = {.6, .2, .1, .1};
    const oracle::Probabilities e_q = {.7, .2, .05, .05};
    const Line lines[] = {
        {"A (1,1)", a_p, a_q, {1, 1}, {10. / 9, 10. / 9, 11. / 9, 11. / 9, -1, -1}},
        {"A (2,1)", a_p, a_q, {2, 1}, {35. / 27, 5. / 3, 38. / 27, 16. / 9, 5. / 3, 16. / 9}},
        {"A (2,2)", a_p, a_q, {2, 2}, {112. / 81, 2, 118. / 81, 2, 2, 2}},
        {"B (2)", b_p, b_q, {2}, {.76, .82, .76, .82, .9, .9}},
        {"B (2,1)", b_p, b_q, {2, 1}, {1.292, 1.394, 1.352, 1.454, 1.53, 1.61}},
        {"B (2,2)", b_p, b_q, {2, 2}, {1.3376, 1.4924, 1.3856, 1.5284, 1.71, 1.76}},
        {"E (2,2)", e_p, e_q, {2, 2}, {1.7381, 406. / 225, 1.7571, 265. / 144, 2, 2}},
    };
    const Kinds groups[] = {{kDrawn, kDrawn}, {kRest, kRest}, {kFixed, kRest}};
    for (const Line& line : lines) {
      for (size_t column = 0; column < line.accepted.size(); ++column) {
        if (line.accepted[column] < 0) continue;
        const bool is_traversal = column == 2 || column == 3 || column == 5;
        const Kinds& group = groups[column >= 4 ? 2 : column % 2];
        ModelOptions options{
            .method = is_traversal ? VerifyMethod::kTraversal : VerifyMethod::kTree,
            .vocab_size = int32_t(line.p.size()),
            .length = 1,
            .fixed_target = line.p,
            .fixed_draft = line.q,
            .exact = true};
        CAPTURE(line.name);
        CAPTURE(column);
        options = WithTree(options, ShapeOf(line.widths, group));
        Enumeration exact(options, {});
        CHECK(exact.Run() < 1e-11);
        CHECK(exact.mean_accepted() == doctest::Approx(line.accepted[column]).epsilon(5e-5));
        MESSAGE(line.name, ", column ", column, ": ", exact.mean_accepted());
        // The kernel's rows are these numbers rounded to fp32.
        options.exact = false;
        Enumeration rounded(options, {});
        CHECK(rounded.Run() < 1e-6);
        CHECK(rounded.mean_accepted() == doctest::Approx(exact.mean_accepted()).epsilon(1e-6));
      }
    }
  }

  TEST_CASE("trees of one kind of siblings: the joint law of several rounds is the target's") {
    for (const Kinds& group : {Kinds{kDrawn, kDrawn}, Kinds{kRest, kRest}, Kinds{kFixed, kFixed}}) {
      CheckLaw({.vocab_size = 2, .length = 4, .seed = 1}, ShapeOf({2, 1}, group), kAll);
      CheckLaw({.vocab_size = 3, .length = 3, .seed = 40}, ShapeOf({2, 1}, group), kAll);
      CheckLaw({.vocab_size = 3, .length = 3, .seed = 50}, ShapeOf({2, 2}, group), kWithQ);
    }
  }

  TEST_CASE("trees of mixed siblings, of width 3 and of depth 3: the law is the target's") {
    CheckLaw({.vocab_size = 3, .length = 3, .seed = 5}, ShapeOf({2, 1}, {kFixed, kRest}), kAll);
    CheckLaw({.vocab_size = 4, .length = 3, .seed = 6}, ShapeOf({3, 1}, {kFixed, kRest, kFixed}),
             kAll);
    CheckLaw({.vocab_size = 4, .length = 2, .seed = 7}, ShapeOf({3, 1}, {kRest, kRest, kRest}),
             kWithQ);
    CheckLaw({.vocab_size = 4, .length = 3, .seed = 8}, ShapeOf({3, 1}, {kRest, kFixed, kRest}),
             kWithQ);
    CheckLaw({.vocab_size = 3, .length = 2, .seed = 9}, ShapeOf({3, 1}, {kDrawn, kFixed, kDrawn}),
             kWithQ);
    CheckLaw({.vocab_size = 2, .length = 4, .seed = 10}, ShapeOf({2, 1, 1}, {kDrawn, kDrawn}),
             kWithQ);
    CheckLaw({.vocab_size = 3, .length = 3, .seed = 60}, ShapeOf({2, 1, 2}, {kFixed, kRest}),
             kWithQ);
    // Nodes in another order than breadth first: a branch, then the second child of the root.
    CheckLaw({.vocab_size = 3, .length = 3, .seed = 11},
             {{kRoot, 0, 1, kRoot, 3}, {kFixed, kRest, kRest, kRest, kFixed}}, kWithQ);
  }

  TEST_CASE("trees with filters, edits and wider drafters: the law is the target's") {
    const Shape rests = ShapeOf({2, 1}, {kRest, kRest});
    const Shape mixed = ShapeOf({2, 1}, {kFixed, kRest});
    const Shape drawn = ShapeOf({2, 1}, {kDrawn, kDrawn});
    for (const Shape& shape : {rests, mixed, drawn}) {
      CheckLaw({.vocab_size = 4,
                .length = 2,
                .target_truncation = {.min_p = 0.1, .top_k = 3, .top_p = 0.9},
                .draft_truncation = {.top_k = 3},
                .seed = 12},
               shape, kWithQ);
      CheckLaw({.vocab_size = 3, .length = 2, .edits = true, .seed = 80}, shape, kAll);
      CheckLaw({.vocab_size = 3, .length = 2, .edits = true, .draft_edits = true, .seed = 17},
               shape, kWithQ);
      CheckLaw({.vocab_size = 2, .length = 2, .wide = true, .seed = 30}, shape, kWithQ);
    }
  }

  TEST_CASE("trees with a side channel: the law is the target's") {
    const Shape shapes[] = {ShapeOf({2, 1}, {kDrawn, kDrawn}), ShapeOf({2, 1}, {kRest, kRest}),
                            ShapeOf({2, 1}, {kFixed, kRest}),
                            ShapeOf({3, 1}, {kRest, kFixed, kRest})};
    for (const Shape& shape : shapes) {
      const bool is_narrow = shape.parents.size() == 4;
      CheckLaw({.vocab_size = is_narrow ? 3 : 4, .length = 2, .side_channel = true, .seed = 70},
               shape, kAll);
      if (!is_narrow) continue;
      CheckLaw({.vocab_size = 4,
                .length = 2,
                .side_channel = true,
                .draft_truncation = {.top_k = 3},
                .seed = 71},
               shape, kWithQ);
      CheckLaw({.vocab_size = 2, .length = 2, .wide = true, .side_channel = true, .seed = 72},
               shape, kWithQ);
    }
  }

  TEST_CASE("negative controls: each mistake with siblings makes the law wrong") {
    struct Control {
      std::string name;
      VerifyMethod method;
      Shape shape;
      Fault fault;
      bool wide = false;
      bool edits = false;
    };
    const Shape drawn = ShapeOf({2, 1}, {kDrawn, kDrawn});
    const Shape rests = ShapeOf({2, 1}, {kRest, kRest});
    const Shape mixed = ShapeOf({2, 1}, {kFixed, kRest});
    const VerifyMethod tree = VerifyMethod::kTree;
    const VerifyMethod traversal = VerifyMethod::kTraversal;
    const Control controls[] = {
        {"tree, merged duplicates", tree, drawn, {.tree = {.merged_duplicates = true}}},
        {"traversal, merged duplicates", traversal, drawn, {.tree = {.merged_duplicates = true}}},
        {"tree, REST as drawn with replacement",
         tree,
         rests,
         {.tree = {.rest_as_drawn_with = true}}},
        {"traversal, REST as drawn with replacement",
         traversal,
         rests,
         {.tree = {.rest_as_drawn_with = true}}},
        {"tree, one-hot ids in the rest", tree, mixed, {.tree = {.one_hot_in_rest = true}}},
        {"traversal, one-hot ids in the rest",
         traversal,
         mixed,
         {.tree = {.one_hot_in_rest = true}}},
        {"tree, a side channel of the whole row",
         tree,
         mixed,
         {.tree = {.side_of_whole_row = true}}},
        {"traversal, a side channel of the whole row",
         traversal,
         mixed,
         {.tree = {.side_of_whole_row = true}}},
        {"traversal, no update of P", traversal, drawn, {.tree = {.no_path_update = true}}},
        {"traversal, coins by sibling",
         traversal,
         ShapeOf({2, 2}, {kDrawn, kDrawn}),
         {.sibling_keys = true}},
        {"tree, an end takes its siblings",
         tree,
         rests,
         {.tree = {.end_takes_siblings = true}},
         true},
        {"traversal, an end takes its siblings",
         traversal,
         rests,
         {.tree = {.end_takes_siblings = true}},
         true},
        {"tree, edits of another branch", tree, drawn, {.other_branch = true}, false, true},
        {"exact_match, edits of another branch",
         VerifyMethod::kExactMatch,
         drawn,
         {.other_branch = true},
         false,
         true},
    };
    for (const Control& control : controls) {
      const double distance = WorstDistance({.method = control.method,
                                             .vocab_size = 3,
                                             .length = 2,
                                             .wide = control.wide,
                                             .edits = control.edits},
                                            control.shape, control.fault);
      MESSAGE(control.name, ": total variation ", distance);
      CHECK(distance > kVisible);
    }
  }

  TEST_CASE("one-hot siblings verified first: the law stays, and fewer tokens are accepted") {
    ModelOptions options{.method = VerifyMethod::kTree,
                         .vocab_size = 3,
                         .length = 1,
                         .fixed_target = {.5, .3, .2},
                         .fixed_draft = {.2, .3, .5},
                         .exact = true};
    options = WithTree(options, ShapeOf({2}, {kFixed, kRest}));
    Enumeration enumeration(options, {.tree = {.one_hot_first = true}});
    CHECK(enumeration.Run() < 1e-11);
    CHECK(enumeration.mean_accepted() == doctest::Approx(.82));
  }
}

}  // namespace
}  // namespace specd
