#include "tests/recorded/player.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "tests/recorded/answer_text.h"
#include "tests/recorded/api_params.h"
#include "tests/recorded/rows.h"
#include "tests/support/c_drafts.h"

namespace specd::recorded {
namespace {

constexpr uint32_t kSequencesPerLife = 8;
constexpr uint32_t kPartsPerLife = 4;
constexpr std::string_view kUnconstrained = "-";

void Require(int code) {
  if (code != SPECD_OK) {
    throw std::runtime_error(fmt::format("{}: {}", specd_code_name(code), specd_last_error()));
  }
}

template <class Float, class Word>
Float FromBits(const std::string& digits) {
  Word bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    throw std::runtime_error(fmt::format("\"{}\" is not hexadecimal", digits));
  }
  return std::bit_cast<Float>(bits);
}

float Number(const std::string& text, float otherwise) {
  return text.empty() ? otherwise : std::stof(text);
}

}  // namespace

Player::Player(const EngineSpec& spec, const PlayerOptions& options)
    : spec_(spec),
      num_rows_(options.num_lives * kPartsPerLife * (spec.max_draft + 1)),
      sequences_(options.num_lives) {
  specd_options open;
  specd_options_init(&open);
  open.vocab_size = spec.vocab_size;
  open.max_draft = spec.max_draft;
  open.max_batch = options.num_lives * kPartsPerLife;
  open.max_sequences = options.num_lives * kSequencesPerLife;
  open.max_scores_per_token = 129;
  open.threads = options.threads;
  Require(specd_open("embedded:cpu", &open, &engine_));
  try {
    target_.data = static_cast<char*>(Bind(SPECD_TARGET_ROWS, spec.target));
    draft_.data = static_cast<char*>(Bind(SPECD_DRAFT_ROWS, spec.draft));
    mask_.data = static_cast<char*>(Bind(SPECD_GRAMMAR_MASK, {}));
    if (spec.bind_draft_tokens != 0) BindTokens();
  } catch (...) {
    specd_close(engine_);
    throw;
  }
}

// A mask is as wide as it has words.
void* Player::Bind(int role, const RowFormat& format) {
  const bool is_mask = role == SPECD_GRAMMAR_MASK;
  const uint64_t stride =
      is_mask ? (spec_.vocab_size + 31) / 32 : spec_.vocab_size + spec_.row_padding;
  specd_region region;
  Require(specd_alloc(engine_, num_rows_ * stride * ElementBytes(format), &region));
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows_;
  tensor.row_stride = stride;
  if (format.dtype == "bf16") tensor.dtype = SPECD_BFLOAT16;
  if (format.dtype == "fp16") tensor.dtype = SPECD_FLOAT16;
  if (format.kind == "probabilities") tensor.kind = SPECD_PROBABILITIES;
  if (format.kind == "final") tensor.kind = SPECD_FINAL_PROBABILITIES;
  tensor.scale = Number(format.scale, 1);
  tensor.cap = Number(format.cap, 0);
  tensor.renormalise = format.renormalise;
  Require(specd_bind(engine_, role, &tensor));
  return region.data;
}

void Player::BindTokens() {
  const uint64_t num_slots = sequences_.size() * kSequencesPerLife;
  specd_region region;
  Require(specd_alloc(engine_, num_slots * spec_.max_draft * sizeof(int32_t), &region));
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_slots;
  Require(specd_bind(engine_, SPECD_DRAFT_TOKENS, &tensor));
  draft_tokens_ = static_cast<int32_t*>(region.data);
}

// ---- rows

void Player::FreeRows() { target_.num_used = draft_.num_used = mask_.num_used = 0; }

uint32_t Player::PlaceRow(std::string_view text, const RowFormat& format, Memory* memory) {
  if (text.starts_with('#')) return static_cast<uint32_t>(std::stoul(std::string(text.substr(1))));
  if (memory->num_used == num_rows_) throw std::runtime_error("there are too many rows in a round");
  const uint64_t stride = uint64_t{spec_.vocab_size} + spec_.row_padding;
  char* to = memory->data + memory->num_used * stride * ElementBytes(format);
  StoreRow(RowValues(text, spec_.vocab_size, format), format, to);
  return memory->num_used++;
}

int32_t Player::PlaceMask(std::string_view text) {
  if (text == kUnconstrained || text.empty()) return -1;
  if (text.starts_with('#')) return std::stoi(std::string(text.substr(1)));
  if (mask_.num_used == num_rows_) throw std::runtime_error("there are too many masks in a round");
  const std::vector<uint32_t> words = MaskWords(text, spec_.vocab_size);
  std::memcpy(mask_.data + mask_.num_used * words.size() * sizeof(uint32_t), words.data(),
              words.size() * sizeof(uint32_t));
  return static_cast<int32_t>(mask_.num_used++);
}

// A sequence that does not exist has a handle that no engine gives out.
specd_sequence Player::Handle(uint32_t life, uint32_t sequence) const {
  const std::vector<specd_sequence>& handles = sequences_[life];
  if (sequence < handles.size()) return handles[sequence];
  // A handle of this engine, with a generation that no sequence gets.
  constexpr specd_sequence kNeverGiven = ~specd_sequence{0} << 32;
  if (!handles.empty()) return handles.front() | kNeverGiven;
  specd_params params;
  specd_params_init(&params);
  specd_sequence_info info = Sized<specd_sequence_info>();
  if (specd_open_sequence(engine_, "bad handle", &params, &info) != SPECD_OK ||
      specd_close_sequence(engine_, info.sequence) != SPECD_OK) {
    throw std::runtime_error(specd_last_error());
  }
  return info.sequence | kNeverGiven;
}

// ---- sequences and calls

Answer Player::Open(uint32_t life, const std::vector<std::string>& texts) {
  const ApiParams params(texts);
  std::vector<specd_sequence_info> infos(params.params().n, Sized<specd_sequence_info>());
  const std::string name = fmt::format("r{}", num_named_++);
  const int code = specd_open_sequence(engine_, name.c_str(), &params.params(), infos.data());
  if (code != SPECD_OK) return Refused(code);
  std::vector<uint64_t> seeds;
  std::vector<uint32_t> methods;
  for (const specd_sequence_info& info : infos) {
    sequences_[life].push_back(info.sequence);
    seeds.push_back(info.seed);
    methods.push_back(info.verify);
  }
  return {Field("seeds", fmt::format("[{}]", fmt::join(seeds, ","))),
          Field("verify", fmt::format("[{}]", fmt::join(methods, ",")))};
}

Answer Player::Play(uint32_t life, const Call& call) {
  FreeRows();
  if (call.op == "sample_draft") return SampleDraft(life, call);
  if (call.op == "score") return Score(call);
  if (call.op == "fork") return Fork(life, call);
  if (call.op == "coins") return SetCoins(life, call);
  if (call.op == "state") return State(life, call);
  const specd_sequence sequence = Handle(life, call.sequence);
  if (call.op == "abort") return {Field("code", specd_abort(engine_, sequence))};
  if (call.op == "close") return {Field("code", specd_close_sequence(engine_, sequence))};
  throw std::runtime_error(fmt::format("there is no call \"{}\"", call.op));
}

Answer Player::SampleDraft(uint32_t life, const Call& call) {
  specd_draft_request request = Sized<specd_draft_request>();
  request.sequence = Handle(life, call.sequence);
  request.row = PlaceRow(call.row, spec_.draft, &draft_);
  request.mask_row = PlaceMask(call.mask);
  request.prefix = call.prefix.data();
  request.num_prefix = static_cast<uint32_t>(call.prefix.size());
  request.sampling = call.sampling;
  request.num_children = std::max(call.num_children, 1u);
  request.first_node = call.first_node;
  specd_draft_children result = Sized<specd_draft_children>();
  child_ = {};
  const int code = specd_sample_draft(engine_, &request, 1, &result);
  if (code != SPECD_OK) return Refused(code);
  std::vector<std::string> children;
  for (const specd_draft_child& child : std::span(result.children, result.num_children)) {
    children.push_back(
        fmt::format("[{},{},{},{}]", child.id, child.count, Bits(child.weight), Bits(child.mass)));
  }
  if (result.num_children > 0) {
    const specd_draft_child& first = result.children[0];
    child_ = {first.id, fmt::format("{:08x}", std::bit_cast<uint32_t>(first.weight)),
              fmt::format("{:016x}", std::bit_cast<uint64_t>(first.mass))};
  }
  Answer answer;
  AddUnless(0u, "status", result.status, &answer);
  answer.push_back(Field("children", fmt::format("[{}]", fmt::join(children, ","))));
  return answer;
}

Answer Player::Score(const Call& call) {
  std::vector<uint32_t> rows;
  for (const std::string& row : call.rows) rows.push_back(PlaceRow(row, spec_.target, &target_));
  specd_score_request request = Sized<specd_score_request>();
  request.rows = rows.data();
  request.ids = call.ids.data();
  request.num_ids = static_cast<uint32_t>(call.ids.size());
  request.mode = call.mode;
  request.num_top = call.num_top;
  request.chosen_ids = {call.chosen_ids.data(), call.chosen_ids.size()};
  specd_score_result result = Sized<specd_score_result>();
  const int code = specd_score(engine_, &request, 1, &result);
  if (code != SPECD_OK) return Refused(code);
  return {Field("code", code), Field("status", result.status),
          Field("num_scored", result.num_scored),
          Field("scores", ScoresText(result.scores, result.num_scored, result.scores_per_token))};
}

Answer Player::Fork(uint32_t life, const Call& call) {
  const std::string name = fmt::format("r{}", num_named_++);
  specd_sequence_info info = Sized<specd_sequence_info>();
  const int code =
      specd_fork(engine_, Handle(life, call.sequence), name.c_str(), &call.seed, &info);
  if (code != SPECD_OK) return Refused(code);
  sequences_[life].push_back(info.sequence);
  return {Field("code", code), Field("seed", info.seed), Field("verify", info.verify)};
}

Answer Player::SetCoins(uint32_t life, const Call& call) {
  std::vector<specd_coin> coins;
  for (const std::string& text : call.coins) {
    std::istringstream stream(text);
    specd_coin coin = {};
    stream >> coin.position >> coin.round_base >> coin.node >> coin.purpose >> coin.value;
    if (!stream) throw std::runtime_error(fmt::format("\"{}\" is no coin", text));
    coins.push_back(coin);
  }
  return {Field("code", specd_set_coins(engine_, Handle(life, call.sequence), coins.data(),
                                        static_cast<uint32_t>(coins.size())))};
}

Answer Player::State(uint32_t life, const Call& call) {
  specd_sequence_state state = {};
  const int code = specd_get_sequence_state(engine_, Handle(life, call.sequence), &state);
  if (code != SPECD_OK) return Refused(code);
  Answer answer = {Field("code", code), Field("finish_reason", state.finish_reason)};
  if (state.finish_reason == SPECD_FINISH_NONE) return answer;
  answer.push_back(Field("kept_tokens", state.kept_tokens));
  answer.push_back(Field("cumulative_logprob", Bits(state.cumulative_logprob)));
  return answer;
}

// ---- rounds

struct Player::DraftLists {
  std::vector<uint8_t> kinds;
  std::vector<uint32_t> target_rows;
  std::vector<uint32_t> draft_rows;
  std::vector<int32_t> mask_rows;
  std::vector<float> weights;
  std::vector<double> masses;
};

specd_draft Player::DraftOf(const LivePart& live, DraftLists* lists) {
  const Part& part = *live.part;
  for (const uint32_t kind : part.kinds) lists->kinds.push_back(static_cast<uint8_t>(kind));
  for (const std::string& row : part.target_rows) {
    lists->target_rows.push_back(PlaceRow(row, spec_.target, &target_));
  }
  for (const std::string& row : part.draft_rows) {
    lists->draft_rows.push_back(PlaceRow(row, spec_.draft, &draft_));
  }
  for (const std::string& mask : part.masks) lists->mask_rows.push_back(PlaceMask(mask));
  for (const std::string& bits : part.weights) {
    lists->weights.push_back(FromBits<float, uint32_t>(bits));
  }
  for (const std::string& bits : part.masses) {
    lists->masses.push_back(FromBits<double, uint64_t>(bits));
  }
  const auto data = [](const auto& list) { return list.empty() ? nullptr : list.data(); };
  specd_draft draft = Sized<specd_draft>();
  draft.sequence = Handle(live.life, part.sequence);
  draft.num_nodes = static_cast<uint32_t>(part.tokens.size());
  draft.flags = part.flags;
  draft.tokens = data(part.tokens);
  if ((part.flags & SPECD_DRAFTS_BY_SLOT) != 0) {
    draft.tokens = nullptr;
    if (draft_tokens_ != nullptr) {
      const uint64_t slot = specd_sequence_slot(draft.sequence);
      std::copy(part.tokens.begin(), part.tokens.end(), draft_tokens_ + slot * spec_.max_draft);
    }
  }
  draft.kinds = data(lists->kinds);
  draft.target_rows = data(lists->target_rows);
  draft.draft_rows = data(lists->draft_rows);
  draft.mask_rows = data(lists->mask_rows);
  draft.draft_weights = data(lists->weights);
  draft.draft_masses = data(lists->masses);
  draft.target_argmax = data(part.target_argmax);
  return draft;
}

std::vector<Answer> Player::Submit(std::span<const LivePart> parts) {
  FreeRows();
  std::vector<DraftLists> lists(parts.size());
  std::vector<specd_draft> drafts;
  for (size_t i = 0; i < parts.size(); ++i) drafts.push_back(DraftOf(parts[i], &lists[i]));
  constexpr uint64_t kRoundId = 1;
  const int code =
      specd_submit(engine_, kRoundId, drafts.data(), static_cast<uint32_t>(drafts.size()));
  if (code != SPECD_OK) return std::vector<Answer>(parts.size(), Refused(code));
  specd_completion done = SizedCompletion();
  Require(specd_poll(engine_, &done, /*timeout_ms=*/60000));
  if (done.num_results != parts.size()) throw std::runtime_error("a result is missing");
  std::vector<Answer> answers;
  for (const specd_result& result : std::span(done.results, done.num_results)) {
    answers.push_back(AnswerOf(result));
  }
  return answers;
}

Answer Player::Stats() {
  specd_engine_stats stats;
  specd_engine_stats_init(&stats);
  Require(specd_get_engine_stats(engine_, &stats));
  return AnswerOf(stats);
}

}  // namespace specd::recorded
