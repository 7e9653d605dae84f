#include "tools/replay/doctor/figures.h"

#include <cmath>

namespace specd::replay {

std::vector<Figure> FiguresOf(const Doctor& doctor) {
  std::vector<Figure> figures;
  const auto add_mean = [&figures](std::string_view name, const MeanSum& sum,
                                   std::optional<double> expected) {
    if (sum.count == 0) return;
    figures.push_back(
        {std::string(name), sum.mean(), sum.error(), sum.count, expected, std::nullopt});
  };
  const auto add_acceptance = [&figures](std::string_view name, const AcceptanceSum& sum) {
    if (sum.num_known == 0) return;
    figures.push_back({std::string(name), sum.rate_of_known(), sum.error(), sum.num_known,
                       sum.expected_rate(), sum.z()});
  };
  // The sum of differences from an expectation that changes from draft to draft.
  const auto add_z = [&figures](std::string_view name, const ZSum& sum) {
    if (sum.count == 0) return;
    const double count = sum.count;
    figures.push_back({std::string(name), sum.difference / count, std::sqrt(sum.variance) / count,
                       sum.count, 0.0, sum.z()});
  };
  const RoundTests& rounds = doctor.round_tests();
  add_acceptance("passed their coin", rounds.passed());
  add_acceptance("accepted, by the method", doctor.all());
  add_acceptance("accepted, by recorded sums of min(p, q)", doctor.overlaps());
  add_mean("p/q at drafts, q whole", rounds.whole_ratio(), 1);
  add_mean("1/residual mass, at most 1", rounds.residuals(), std::nullopt);
  const RowTests* const rows = doctor.row_tests();
  if (rows == nullptr) return figures;
  add_acceptance("accepted, by the sum of min(p, q)", rows->accepted());
  add_z("min(1, p/q) less the sum of min(p, q)", rows->shares());
  add_z("ln q of drafts less its expectation", rows->draws().log_q());
  constexpr std::string_view kRepeats[] = {"coin of the place before",
                                           "coin of the sequence before",
                                           "coin of the round before", "coin that accepts"};
  for (size_t which = 0; which < kNumCoinRepeats; ++which) {
    add_z(kRepeats[which], rows->repeats(static_cast<CoinRepeat>(which)));
  }
  constexpr std::string_view kSwaps[] = {"gain by swapped target rows, places",
                                         "gain by swapped target rows, sequences"};
  for (size_t which = 0; which < kNumNeighbours; ++which) {
    add_mean(kSwaps[which], rows->swaps(static_cast<Neighbours>(which)).overlap, std::nullopt);
  }
  add_mean("the sum of min(p, q): a drawn draft", rows->overlap(), std::nullopt);
  add_mean("p of q's best id: an argmax draft", rows->best(), std::nullopt);
  add_mean("the best id and one of the rest", rows->mixed(), std::nullopt);
  add_mean("p of an n-gram's id", doctor.ngram(), std::nullopt);
  add_mean("p outside the draft row", rows->outside(), std::nullopt);
  return figures;
}

}  // namespace specd::replay
