#include "speculative/grammar/xgrammar_matcher.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

uint32_t BitOf(TokenId id) { return 1u << (static_cast<uint32_t>(id) % 32); }
size_t WordOf(TokenId id) { return static_cast<size_t>(id) / 32; }

}  // namespace

std::unique_ptr<XgrammarMatcher> XgrammarMatcher::Create(
    const XgrammarShared& shared, std::shared_ptr<const CompiledGrammar> compiled,
    const TvmValue& grammar, const MatcherOptions& options) {
  std::unique_ptr<XgrammarMatcher> matcher(new XgrammarMatcher(shared, std::move(compiled)));
  auto stop_ids = std::make_shared<std::vector<TokenId>>();
  auto text_ids = std::make_shared<Words>(shared.text_ids);
  for (const TokenId id : options.stop_ids) {
    if (id < 0 || id >= shared.vocab_size) continue;
    stop_ids->push_back(id);
    (*text_ids)[WordOf(id)] &= ~BitOf(id);
  }
  matcher->stop_ids_ = std::move(stop_ids);
  matcher->text_ids_ = std::move(text_ids);

  const XgrammarMethods& methods = shared.methods;
  absl::StatusOr<TvmValue> handle = methods.library->Call(
      methods.new_matcher, {grammar.view(), TvmNone(), TvmBool(false), TvmInt(-1), TvmNone()});
  if (matcher->Keep(handle.status())) matcher->matcher_ = *std::move(handle);
  return matcher;
}

bool XgrammarMatcher::Keep(const absl::Status& status) {
  if (status.ok()) return true;
  status_.Update(status);
  row_ = nullptr;
  return false;
}

std::optional<MaskRow> XgrammarMatcher::TryMask(WorkSlice* /*slice*/) {
  FillRow();
  return MaskRow(row_);
}

void XgrammarMatcher::FillRow() {
  if (row_ != nullptr) return;
  auto words = std::make_shared<Words>(text_ids_->size());
  const bool is_accepting = IsAccepting();
  if (status_.ok() && !IsTerminated()) Keep(FillText(*words));
  if (!status_.ok()) std::fill(words->begin(), words->end(), 0u);
  row_has_text_ =
      std::any_of(words->begin(), words->end(), [](uint32_t word) { return word != 0; });
  if (status_.ok() && is_accepting) {
    for (const TokenId id : *stop_ids_) (*words)[WordOf(id)] |= BitOf(id);
  }
  row_ = std::move(words);
}

absl::Status XgrammarMatcher::FillText(Words& words) const {
  int64_t shape[] = {1, static_cast<int64_t>(words.size())};
  int64_t strides[] = {shape[1], 1};
  tvm::Tensor tensor = {.data = words.data(),
                        .device_type = tvm::kDeviceCpu,
                        .device_index = 0,
                        .num_dimensions = 2,
                        .element_code = tvm::kElementInt,
                        .element_bits = 32,
                        .element_lanes = 1,
                        .shape = shape,
                        .strides = strides,
                        .offset_bytes = 0};
  tvm::Any argument = {};
  argument.type_index = tvm::kTensorPointer;
  argument.pointer = &tensor;
  const XgrammarMethods& methods = shared_.methods;
  absl::StatusOr<TvmValue> filled = methods.library->Call(
      methods.fill_mask, {matcher_.view(), argument, TvmInt(0), TvmBool(false)});
  // The library's answer says whether any id is forbidden; the row is filled in both cases.
  if (!filled.ok()) return filled.status();
  for (size_t word = 0; word < words.size(); ++word) words[word] &= (*text_ids_)[word];
  return absl::OkStatus();
}

bool XgrammarMatcher::Accept(TokenId id) {
  if (!status_.ok() || id < 0 || id >= shared_.vocab_size) return false;
  if (std::find(stop_ids_->begin(), stop_ids_->end(), id) != stop_ids_->end()) {
    if (!IsAccepting()) return false;
    ++num_stop_ids_;
    row_ = nullptr;
    return true;
  }
  if (IsTerminated() || ((*text_ids_)[WordOf(id)] & BitOf(id)) == 0) return false;
  return Advance(shared_.methods.accept_token, TvmInt(id));
}

bool XgrammarMatcher::AcceptText(std::string_view text) {
  if (!status_.ok() || IsTerminated()) return false;
  absl::StatusOr<TvmValue> bytes = shared_.methods.library->MakeBytes(text);
  if (!Keep(bytes.status())) return false;
  return Advance(shared_.methods.accept_text, bytes->view());
}

bool XgrammarMatcher::Advance(const TvmLibrary::Function& method, const tvm::Any& argument) {
  absl::StatusOr<TvmValue> value =
      shared_.methods.library->Call(method, {matcher_.view(), argument, TvmBool(false)});
  absl::StatusOr<bool> accepted = value.ok() ? value->ToBool() : value.status();
  if (!Keep(accepted.status()) || !*accepted) return false;
  ++num_text_ids_;
  row_ = nullptr;
  return true;
}

void XgrammarMatcher::Rollback(size_t num_tokens) {
  SPECD_CHECK(num_tokens <= num_accepted());
  if (num_tokens == 0) return;
  row_ = nullptr;
  const size_t num_stops = std::min(num_tokens, num_stop_ids_);
  num_stop_ids_ -= num_stops;
  const size_t num_texts = num_tokens - num_stops;
  num_text_ids_ -= num_texts;
  if (num_texts == 0 || !status_.ok()) return;
  const XgrammarMethods& methods = shared_.methods;
  Keep(methods.library
           ->Call(methods.rollback, {matcher_.view(), TvmInt(static_cast<int64_t>(num_texts))})
           .status());
}

std::unique_ptr<GrammarMatcher> XgrammarMatcher::Fork() const {
  std::unique_ptr<XgrammarMatcher> fork(new XgrammarMatcher(shared_, compiled_));
  fork->status_ = status_;
  fork->stop_ids_ = stop_ids_;
  fork->text_ids_ = text_ids_;
  fork->num_text_ids_ = num_text_ids_;
  fork->num_stop_ids_ = num_stop_ids_;
  fork->row_ = row_;
  fork->row_has_text_ = row_has_text_;
  if (!status_.ok()) return fork;
  const XgrammarMethods& methods = shared_.methods;
  absl::StatusOr<TvmValue> handle = methods.library->Call(methods.fork, {matcher_.view()});
  if (fork->Keep(handle.status())) fork->matcher_ = *std::move(handle);
  return fork;
}

bool XgrammarMatcher::IsTextComplete() {
  const XgrammarMethods& methods = shared_.methods;
  absl::StatusOr<TvmValue> value = methods.library->Call(methods.is_completed, {matcher_.view()});
  absl::StatusOr<bool> is_complete = value.ok() ? value->ToBool() : value.status();
  return Keep(is_complete.status()) && *is_complete;
}

bool XgrammarMatcher::IsAccepting() {
  if (!status_.ok()) return false;
  return IsTerminated() || IsTextComplete();
}

bool XgrammarMatcher::IsFinished() {
  if (!IsAccepting()) return false;
  FillRow();
  return status_.ok() && !row_has_text_;
}

std::string XgrammarMatcher::ForcedText() {
  // Where the text may end, also after a stop id, the library forces nothing.
  if (!status_.ok()) return {};
  const XgrammarMethods& methods = shared_.methods;
  absl::StatusOr<TvmValue> value = methods.library->Call(methods.forced_text, {matcher_.view()});
  absl::StatusOr<std::string> text = value.ok() ? value->ToText() : value.status();
  return Keep(text.status()) ? *std::move(text) : std::string();
}

}  // namespace specd::grammar
