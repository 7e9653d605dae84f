#include "tools/replay/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace specd::replay {
namespace {

// A gain in acceptance that is worth a sentence.
constexpr double kGainMin = 0.01;
// A share of the rejections that is worth a sentence.
constexpr double kCauseMin = 0.1;

// The correlation of ranks above which one coin was used twice, and not q wrong.
constexpr double kOneCoin = 0.5;

std::string Plus(const MeanSum& sum) {
  return fmt::format("{:.3f} +- {:.3f}", sum.mean(), sum.error());
}

bool IsFar(const ZSum& sum) { return sum.count >= kCountMin && std::abs(sum.z()) > kSigmas; }
bool IsFar(const AcceptanceSum& sum) {
  return sum.num_known >= kCountMin && std::abs(sum.z()) > kSigmas;
}
// A sharp q overlaps any sharp p better than a flat one, and rows of unlike sequences may be unlike
// in both. Their best ids have no part in that, so that both figures have to be far.
bool IsSwapped(const SwapSum& sum) {
  return sum.overlap.count >= kCountMin / 2 && sum.overlap.mean() >= kGainMin &&
         sum.overlap.SymmetricZ() > kSigmas && sum.agreement.SymmetricZ() > kSigmas;
}
bool IsGain(const MeanSum& gain) {
  return gain.count >= kCountMin && gain.mean() > kGainMin && gain.z(0) > kSigmas;
}

class Writer {
 public:
  Writer(const Doctor& doctor, const Costs& costs)
      : doctor_(doctor), rows_(doctor.row_tests()), costs_(costs) {}

  std::vector<Finding> Run() {
    if (rows_ != nullptr) {
      FindRepeats(kOneCoin);
      FindDraws();
      FindSwappedRows();
      FindRepeats(0);
    }
    FindCoins();
    FindGap();
    FindRatio();
    if (rows_ != nullptr) {
      AdviseKind();
      AdviseTemperature();
      AdviseOutside();
    }
    AdviseCauses();
    AdviseLength();
    return std::move(findings_);
  }

 private:
  void Fault(std::string name, std::string sentence) {
    findings_.push_back({true, std::move(name), std::move(sentence)});
  }
  void Advise(std::string name, std::string sentence) {
    findings_.push_back({false, std::move(name), std::move(sentence)});
  }
  bool Has(std::string_view name) const {
    return std::any_of(findings_.begin(), findings_.end(),
                       [name](const Finding& finding) { return finding.name == name; });
  }

  // If coins repeat, the draws are not independent, and their figures vary more.
  void FindDraws() {
    const DrawEvidence& draws = rows_->draws();
    if (!draws.IsWrong() || Has("draft_coins")) return;
    Fault(
        "draft_rows",
        fmt::format("{} ({} drafts; ln q of the drafts is {:+.1f} sigma from its expectation, "
                    "and the odds against the declared q are e^{:.0f})",
                    draws.Sentence(), draws.num_draws(), draws.log_q().z(), draws.log_evidence()));
  }

  // If the drafts are not those of their rows, q is the wrong one of the pair.
  void FindSwappedRows() {
    if (Has("draft_rows")) return;
    const SwapSum& places = rows_->swaps(Neighbours::kPlaces);
    const SwapSum& sequences = rows_->swaps(Neighbours::kSequences);
    const bool by_places = IsSwapped(places);
    const bool by_sequences = IsSwapped(sequences);
    if (!by_places && !by_sequences) return;
    const bool is_place =
        by_places && (!by_sequences || places.overlap.mean() > sequences.overlap.mean());
    const SwapSum& sum = is_place ? places : sequences;
    const bool is_before = sum.num_before >= sum.num_after;
    const std::string_view fit = is_before ? "before" : "after";
    const std::string what =
        is_place ? fmt::format(
                       "q fits the target row of the place {} better than its own: "
                       "target_rows look shifted by one; name for place i the row after i "
                       "draft tokens",
                       fit)
                 : fmt::format(
                       "q fits the target rows of the sequence {} in the round better than "
                       "its own: each sequence has the target rows of the sequence {} it; "
                       "name for each sequence its own",
                       fit, is_before ? "after" : "before");
    Fault("target_rows",
          fmt::format("{} (with swapped target rows the sum of min(p, q) would be larger by {} "
                      "over {} rounds)",
                      what, Plus(sum.overlap), sum.overlap.count));
  }

  // A wrong q makes the ranks of the drafts uneven, which correlates them a little.
  void FindRepeats(double least_correlation) {
    if (HasFault()) return;
    static constexpr std::array<std::string_view, kNumCoinRepeats> kWhere = {
        "of the place before", "of the sequence before in the round", "of the round before",
        "with which specd accepts"};
    for (size_t which = 0; which < kNumCoinRepeats; ++which) {
      const ZSum& sum = rows_->repeats(static_cast<CoinRepeat>(which));
      const double scale = std::sqrt(sum.variance * static_cast<double>(sum.count));
      const double correlation = scale > 0 ? sum.difference / scale : 0;
      if (!IsFar(sum) || std::abs(correlation) < least_correlation) continue;
      Fault("draft_coins",
            fmt::format("the drafter's coins are not independent of those {}: draw each draft "
                        "token with a coin of its own ({:+.1f} sigma, {} pairs)",
                        kWhere[which], sum.z(), sum.count));
    }
  }

  void FindCoins() {
    const AcceptanceSum& passed = doctor_.round_tests().passed();
    if (!IsFar(passed) || Has("draft_coins")) return;
    Fault("accept_coins",
          fmt::format("{:.0f} of {} tokens passed their coin, and p and q expect {:.0f} ({:+.1f} "
                      "sigma): the drafts depend on the coins that accept them; draw drafts with "
                      "other coins and seeds, and run specd-replay verify",
                      passed.accepted, passed.count, passed.expected, passed.z()));
  }

  void FindGap() {
    const AcceptanceSum& rows =
        rows_ != nullptr && rows_->accepted().count > 0 ? rows_->accepted() : doctor_.overlaps();
    const bool is_far = IsFar(rows) || (rows_ != nullptr && IsFar(rows_->shares()));
    if (!is_far || !findings_.empty()) return;
    Fault("acceptance_gap",
          fmt::format(
              "{:.3f} of the drafts were accepted, and the sum of min(p, q) expects {:.3f} +- "
              "{:.3f}: the rows or the coins are not those of the declared drafter; "
              "compare draft_rows, draft_temperature and the draft filters",
              rows.rate(), rows.expected_rate(), rows.error()));
  }

  // With rows, DrawEvidence says more of q, so that this is no fault.
  void FindRatio() {
    const RoundTests& tests = doctor_.round_tests();
    const bool has_rows = rows_ != nullptr && rows_->draws().num_draws() > 0;
    if (!findings_.empty() || (has_rows && !tests.IsWrong())) return;
    const std::string figures =
        fmt::format("the mean of p/q at the drafts is {} and of 1/residual mass {}",
                    Plus(tests.ratio()), Plus(tests.residuals()));
    if (tests.IsWrong() && has_rows) {
      Advise("draft_ratio",
             fmt::format("{}, and neither is above 1 if q is right: compare draft_temperature, the "
                         "draft filters and draft_rows",
                         figures));
    } else if (tests.IsWrong()) {
      Fault("draft_ratio",
            fmt::format("{}, and neither is above 1 if q is right: the drafts were not drawn from "
                        "the declared q; record with level=rows to have the cause named",
                        figures));
    } else if (tests.IsSuspect()) {
      Advise("draft_ratio",
             fmt::format("{}: either the drafts were not drawn from the declared q, or its rows "
                         "leave ids out with -inf, or p/q is large at rare ids that did not come "
                         "up; record with level=rows to have it told",
                         figures));
    }
  }

  void AdviseKind() {
    const MeanSum& overlap = rows_->overlap();
    if (overlap.count < kCountMin || HasFault()) return;
    if (IsGain(rows_->mixed_gain())) {
      Advise("draft_kind",
             fmt::format("two siblings, the best id of q and one drawn from the rest, would be "
                         "accepted at {}, and one drawn draft at {}: draft a tree of mixed "
                         "siblings if a row more costs less than that",
                         Plus(rows_->mixed()), Plus(overlap)));
    }
    if (IsGain(rows_->best_gain())) {
      Advise("draft_kind",
             fmt::format("the best id of q would be accepted at {}, and a drawn one at {}: draft "
                         "the argmax as one-hot",
                         Plus(rows_->best()), Plus(overlap)));
    }
    if (IsGain(doctor_.ngram_gain())) {
      Advise("draft_kind",
             fmt::format("n-grams of the confirmed text would be accepted at {}, and the drafts "
                         "at {}: draft n-grams",
                         Plus(doctor_.ngram()), Plus(overlap)));
    }
  }

  void AdviseTemperature() {
    if (HasFault() || rows_->log_gains().empty()) return;
    const auto& gains = rows_->log_gains();
    const auto best =
        std::max_element(gains.begin(), gains.end(),
                         [](const MeanSum& a, const MeanSum& b) { return a.mean() < b.mean(); });
    const size_t k = best - gains.begin();
    if (best->z(0) < kSigmas || !IsGain(rows_->gains()[k])) return;
    const double factor = DrawEvidence::Temperatures()[k];
    Advise("draft_temperature",
           fmt::format("q is {} than p: {:.2g} times the draft temperature would make p likeliest, "
                       "and drafts be accepted at {} in place of {}",
                       factor > 1 ? "sharper" : "flatter", factor, Plus(rows_->acceptances()[k]),
                       Plus(rows_->overlap())));
  }

  void AdviseOutside() {
    const MeanSum& outside = rows_->outside();
    if (outside.count < kCountMin || outside.mean() < kGainMin) return;
    Advise("draft_vocabulary",
           fmt::format("{} of p lies on ids that the draft rows leave out: no draft of them can "
                       "be accepted; a larger draft vocabulary or weaker draft filters would",
                       Plus(outside)));
  }

  void AdviseCauses() {
    uint64_t all = 0;
    for (const auto& [cause, count] : doctor_.causes()) all += count;
    for (const auto& [cause, count] : doctor_.causes()) {
      const bool is_step = cause.rfind("p is 0: ", 0) == 0;
      const double share = static_cast<double>(count) / static_cast<double>(all);
      if (!is_step || all < kCountMin || share < kCauseMin) continue;
      Advise("rejections",
             fmt::format("{} of {} rejections have p = 0 because of this: {}; let the drafter "
                         "apply the same step, so that it does not draft such ids",
                         count, all, cause.substr(8)));
    }
  }

  void AdviseLength() {
    const std::vector<LengthGain> gains =
        doctor_.lengths().Gains(costs_.draft_ms, costs_.target_ms);
    const LengthGain* const best = BestOf(gains);
    if (best == nullptr) return;
    Advise(
        "draft_length",
        fmt::format("with {:g} ms for a draft token and {:g} ms for a forward pass, {} draft "
                    "tokens are best: {:.2f} tokens for each forward pass, {:.1f} per second{}",
                    costs_.draft_ms, costs_.target_ms, best->length, best->tokens, best->per_second,
                    best->is_guess ? " (no draft was so long; the rate of the last place is "
                                     "taken for the others)"
                                   : ""));
  }

  bool HasFault() const {
    return std::any_of(findings_.begin(), findings_.end(),
                       [](const Finding& finding) { return finding.is_fault; });
  }

  const Doctor& doctor_;
  const RowTests* const rows_;
  const Costs& costs_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> FindingsOf(const Doctor& doctor, const Costs& costs) {
  return Writer(doctor, costs).Run();
}

}  // namespace specd::replay
