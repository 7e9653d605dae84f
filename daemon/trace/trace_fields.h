// VisitFields lists the members of each record of a trace with their names on disk.
//
// One list serves the encoder and the decoder. `visit` is called with a name and a pointer to a
// member, in the order of the struct. The encoder refuses to compile a record whose list has
// forgotten a member.
#pragma once

#include <cstddef>
#include <type_traits>

#include "daemon/trace/task_fields.h"
#include "daemon/trace/trace_record.h"

namespace specd {

template <class T>
using RecordType = std::type_identity<T>;

template <class V>
constexpr void VisitFields(RecordType<TraceInfo>, V&& visit) {
  visit("version", &TraceInfo::version);
  visit("specd_version", &TraceInfo::specd_version);
  visit("build", &TraceInfo::build);
  visit("backend", &TraceInfo::backend);
  visit("processor", &TraceInfo::processor);
  visit("tokenizer", &TraceInfo::tokenizer);
  visit("row_file", &TraceInfo::row_file);
  visit("options", &TraceInfo::options);
  visit("vocab_size", &TraceInfo::vocab_size);
  visit("session", &TraceInfo::session);
  visit("start_ns", &TraceInfo::start_ns);
  visit("start_unix_ns", &TraceInfo::start_unix_ns);
  visit("eos_token_ids", &TraceInfo::eos_token_ids);
  visit("anonymised", &TraceInfo::anonymised);
}

template <class V>
constexpr void VisitFields(RecordType<TraceOpening>, V&& visit) {
  visit("time_ns", &TraceOpening::time_ns);
  visit("sequence", &TraceOpening::sequence);
  visit("forked_from", &TraceOpening::forked_from);
  visit("request_id", &TraceOpening::request_id);
  visit("method", &TraceOpening::method);
  visit("seed", &TraceOpening::seed);
  visit("numbers", &TraceOpening::numbers);
  visit("lists", &TraceOpening::lists);
  visit("list_hashes", &TraceOpening::list_hashes);
  visit("stop_token_ids", &TraceOpening::stop_token_ids);
  visit("num_prompt_ids", &TraceOpening::num_prompt_ids);
  visit("kept_tokens", &TraceOpening::kept_tokens);
  visit("constraint", &TraceOpening::constraint);
  visit("constraint_hash", &TraceOpening::constraint_hash);
}

template <class V>
constexpr void VisitFields(RecordType<TraceEnd>, V&& visit) {
  visit("time_ns", &TraceEnd::time_ns);
  visit("sequence", &TraceEnd::sequence);
  visit("reason", &TraceEnd::reason);
  visit("kept_tokens", &TraceEnd::kept_tokens);
}

template <class V>
constexpr void VisitFields(RecordType<TraceDrops>, V&& visit) {
  visit("time_ns", &TraceDrops::time_ns);
  visit("rounds", &TraceDrops::rounds);
  visit("rows", &TraceDrops::rows);
  visit("bytes", &TraceDrops::bytes);
  visit("why", &TraceDrops::why);
}

template <class V>
constexpr void VisitFields(RecordType<TraceTimes>, V&& visit) {
  visit("submitted", &TraceTimes::submitted);
  visit("taken", &TraceTimes::taken);
  visit("packed", &TraceTimes::packed);
  visit("ran", &TraceTimes::ran);
  visit("committed", &TraceTimes::committed);
  visit("answered", &TraceTimes::answered);
}

template <class V>
constexpr void VisitFields(RecordType<TraceRow>, V&& visit) {
  visit("tensor", &TraceRow::tensor);
  visit("index", &TraceRow::index);
  visit("hash", &TraceRow::hash);
  visit("offset", &TraceRow::offset);
}

template <class V>
constexpr void VisitFields(RecordType<ElementRules>, V&& visit) {
  visit("kind", &ElementRules::kind);
  visit("renormalise", &ElementRules::renormalise);
  visit("scale", &ElementRules::scale);
  visit("cap", &ElementRules::cap);
}

template <class V>
constexpr void VisitFields(RecordType<TraceTensorInfo>, V&& visit) {
  visit("dtype", &TraceTensorInfo::dtype);
  visit("rules", &TraceTensorInfo::rules);
  visit("space", &TraceTensorInfo::space);
  visit("num_columns", &TraceTensorInfo::num_columns);
}

template <class V>
constexpr void VisitFields(RecordType<TokenEdit>, V&& visit) {
  visit("id", &TokenEdit::id);
  visit("flags", &TokenEdit::flags);
  visit("bias", &TokenEdit::bias);
  visit("count", &TokenEdit::count);
}

template <class V>
constexpr void VisitFields(RecordType<TracePlace>, V&& visit) {
  visit("grammar_state", &TracePlace::grammar_state);
  visit("mask_row", &TracePlace::mask_row);
  visit("grammar_mask", &TracePlace::grammar_mask);
  visit("below_min_tokens", &TracePlace::below_min_tokens);
  visit("forced", &TracePlace::forced);
  visit("in_thought", &TracePlace::in_thought);
  visit("overrides", &TracePlace::overrides);
}

template <class V>
constexpr void VisitFields(RecordType<Filters>, V&& visit) {
  visit("min_p", &Filters::min_p);
  visit("top_k", &Filters::top_k);
  visit("top_p", &Filters::top_p);
  visit("joint", &Filters::joint);
}

template <class V>
constexpr void VisitFields(RecordType<LossyRule>, V&& visit) {
  visit("epsilon", &LossyRule::epsilon);
  visit("delta", &LossyRule::delta);
  visit("single", &LossyRule::single);
  visit("acc", &LossyRule::acc);
  visit("num_best", &LossyRule::num_best);
  visit("only_thoughts", &LossyRule::only_thoughts);
  visit("is_greedy", &LossyRule::is_greedy);
}

template <class V>
constexpr void VisitFields(RecordType<ScoreRequest>, V&& visit) {
  visit("enabled", &ScoreRequest::enabled);
  visit("mode", &ScoreRequest::mode);
  visit("num_top", &ScoreRequest::num_top);
  visit("num_chosen", &ScoreRequest::num_chosen);
}

template <class V>
constexpr void VisitFields(RecordType<CoinKey>, V&& visit) {
  visit("position", &CoinKey::position);
  visit("round_base", &CoinKey::round_base);
  visit("node", &CoinKey::node);
  visit("purpose", &CoinKey::purpose);
}

template <class V>
constexpr void VisitFields(RecordType<InjectedCoin>, V&& visit) {
  visit("key", &InjectedCoin::key);
  visit("coin", &InjectedCoin::coin);
}

template <class V>
constexpr void VisitFields(RecordType<Penalties>, V&& visit) {
  visit("repetition", &Penalties::repetition);
  visit("frequency", &Penalties::frequency);
  visit("presence", &Penalties::presence);
}

template <class V>
constexpr void VisitFields(RecordType<TaskOutcome>, V&& visit) {
  visit("status", &TaskOutcome::status);
  visit("num_accepted", &TaskOutcome::num_accepted);
  visit("num_tokens", &TaskOutcome::num_tokens);
  visit("num_drafts", &TaskOutcome::num_drafts);
  visit("empty_residuals", &TaskOutcome::empty_residuals);
  visit("invalid_drafts", &TaskOutcome::invalid_drafts);
  visit("point_masses", &TaskOutcome::point_masses);
  visit("fault", &TaskOutcome::fault);
}

template <class V>
constexpr void VisitFields(RecordType<TokenScore>, V&& visit) {
  visit("id", &TokenScore::id);
  visit("value", &TokenScore::value);
  visit("rank", &TokenScore::rank);
}

template <class V>
constexpr void VisitFields(RecordType<CoinInterval>, V&& visit) {
  visit("low", &CoinInterval::low);
  visit("high", &CoinInterval::high);
}

template <class V>
constexpr void VisitFields(RecordType<PlaceDecision>, V&& visit) {
  visit("judged", &PlaceDecision::judged);
  visit("stands", &PlaceDecision::stands);
  visit("bad_target", &PlaceDecision::bad_target);
  visit("bad_draft", &PlaceDecision::bad_draft);
  visit("token", &PlaceDecision::token);
  visit("p_weight", &PlaceDecision::p_weight);
  visit("q_weight", &PlaceDecision::q_weight);
  visit("p_mass", &PlaceDecision::p_mass);
  visit("q_mass", &PlaceDecision::q_mass);
  visit("accept_coin", &PlaceDecision::accept_coin);
  visit("prefix", &PlaceDecision::prefix);
  visit("bound", &PlaceDecision::bound);
  visit("draw_coin", &PlaceDecision::draw_coin);
  visit("draw_purpose", &PlaceDecision::draw_purpose);
  visit("draw_interval", &PlaceDecision::draw_interval);
  visit("residual_mass", &PlaceDecision::residual_mass);
  visit("token_weight", &PlaceDecision::token_weight);
  visit("zero_step", &PlaceDecision::zero_step);
  visit("overlap", &PlaceDecision::overlap);
  visit("best_draft_p", &PlaceDecision::best_draft_p);
}

template <class V>
constexpr void VisitFields(RecordType<TraceTask>, V&& visit) {
  visit("answer", &TraceTask::answer);
  VisitDraftArrays([&visit](const char* name, auto, auto member, int) { visit(name, member); });
  VisitTaskValues([&visit](const char* name, auto, auto member) { visit(name, member); });
  visit("rates", &TraceTask::rates);
  visit("scores", &TraceTask::scores);
  visit("chosen", &TraceTask::chosen);
  visit("coins", &TraceTask::coins);
  visit("penalties", &TraceTask::penalties);
  visit("num_edits", &TraceTask::num_edits);
  visit("edits_hash", &TraceTask::edits_hash);
  visit("overrides_hash", &TraceTask::overrides_hash);
  visit("parameters_hash", &TraceTask::parameters_hash);
  visit("edits", &TraceTask::edits);
  visit("allowed", &TraceTask::allowed);
  visit("places", &TraceTask::places);
  visit("outcome", &TraceTask::outcome);
  visit("confirmed", &TraceTask::confirmed);
  visit("path", &TraceTask::path);
  visit("token_scores", &TraceTask::token_scores);
  visit("decisions", &TraceTask::decisions);
}

template <class V>
constexpr void VisitFields(RecordType<TraceAnswer>, V&& visit) {
  visit("sequence", &TraceAnswer::sequence);
  visit("status", &TraceAnswer::status);
  visit("refusal", &TraceAnswer::refusal);
  visit("finish_reason", &TraceAnswer::finish_reason);
  visit("num_accepted", &TraceAnswer::num_accepted);
  visit("num_kept", &TraceAnswer::num_kept);
  visit("total_kept", &TraceAnswer::total_kept);
  visit("stop_token", &TraceAnswer::stop_token);
}

template <class V>
constexpr void VisitFields(RecordType<TraceRoundFacts>, V&& visit) {
  visit("number", &TraceRoundFacts::number);
  visit("round_id", &TraceRoundFacts::round_id);
  visit("level", &TraceRoundFacts::level);
  visit("status", &TraceRoundFacts::status);
  visit("no_rows", &TraceRoundFacts::no_rows);
  visit("on_stream", &TraceRoundFacts::on_stream);
  visit("staged", &TraceRoundFacts::staged);
  visit("times", &TraceRoundFacts::times);
}

template <class V>
constexpr void VisitFields(RecordType<TraceRound>, V&& visit) {
  VisitFields(RecordType<TraceRoundFacts>{}, visit);
  visit("target", &TraceRound::target);
  visit("draft", &TraceRound::draft);
  visit("answers", &TraceRound::answers);
  visit("tasks", &TraceRound::tasks);
  visit("rows", &TraceRound::rows);
}

// The members of a record that its list must have.
template <class T>
inline constexpr size_t kNumFields = NumMembers<T>();
template <>
inline constexpr size_t kNumFields<TraceRound> = NumMembers<TraceRound>() -
                                                 1 + NumMembers<TraceRoundFacts>();
// `chosen` is a list of TraceTask.
template <>
inline constexpr size_t kNumFields<ScoreRequest> = NumMembers<ScoreRequest>() - 1;
// `rates` and their number are a list of TraceTask.
template <>
inline constexpr size_t kNumFields<LossyRule> = NumMembers<LossyRule>() - 2;
// round_copy.cc makes `position`, `draft`, `node` and `parent` numbers of the task.
template <>
inline constexpr size_t kNumFields<PlaceDecision> = NumMembers<PlaceDecision>() - 4;

template <class T>
constexpr size_t NumListed() {
  size_t count = 0;
  VisitFields(RecordType<T>{}, [&count](const char*, auto) { ++count; });
  return count;
}

}  // namespace specd
