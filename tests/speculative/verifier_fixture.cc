#include "tests/speculative/verifier_fixture.h"

namespace specd {

VerifierFixture::VerifierFixture(const grammar::MaskPool::NowNs& now_ns, int64_t piece_work) {
  auto owned = std::make_unique<ScriptedBackend>();
  backend = owned.get();
  VerifierOptions options;
  options.limits = kLimits;
  options.max_sequences = 4;
  options.eos_token_ids = {7};
  options.now_ns = now_ns;
  options.piece_work = piece_work;
  auto created = Verifier::Create(options, std::move(owned));
  REQUIRE(created.ok());
  verifier = *std::move(created);
  REQUIRE(verifier->BindTarget(View()).ok());
  REQUIRE(verifier->BindDraft(DraftView()).ok());
}

VerifierFixture::~VerifierFixture() = default;

}  // namespace specd
