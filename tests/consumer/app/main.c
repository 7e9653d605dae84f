/* An engine of one greedy sequence, from the installed headers alone: opens the verifier in this
 * process, lets it judge two draft tokens, and checks the answer against the argmax that stands in
 * the rows below, as does a library call. A mask of the grammar engine is checked too. Exit status
 * 0 if everything came as the headers promise.
 */
#include <specd/grammar.h>
#include <specd/ops.h>
#include <specd/specd.h>
#include <stdio.h>
#include <string.h>

enum { VOCAB_SIZE = 8, NUM_DRAFTS = 2, NUM_ROWS = NUM_DRAFTS + 1 };

/* The argmax of row i is ARGMAX[i]. The first draft token agrees, the second does not, so the round
 * keeps the first and the argmax of row 1; row 2 belongs to a draft that was refused. */
static const int32_t ARGMAX[NUM_ROWS] = {5, 2, 7};
static const int32_t DRAFT[NUM_DRAFTS] = {5, 3};
static const uint64_t ROUND_ID = 41;

static int failed(const char* what, int code) {
  fprintf(stderr, "consumer: %s: %s: %s\n", what, specd_code_name(code), specd_last_error());
  return 1;
}

static int wrong(const char* what, long found, long expected) {
  fprintf(stderr, "consumer: %s is %ld, expected %ld\n", what, found, expected);
  return 1;
}

static void fill_rows(float* rows) {
  for (int i = 0; i < NUM_ROWS; ++i) {
    for (int token = 0; token < VOCAB_SIZE; ++token) {
      rows[i * VOCAB_SIZE + token] = token == ARGMAX[i] ? 2.0f : -1.0f;
    }
  }
}

static int bind_rows(specd_engine* engine) {
  specd_region region;
  specd_tensor tensor;
  int code = specd_alloc(engine, NUM_ROWS * VOCAB_SIZE * sizeof(float), &region);
  if (code != SPECD_OK) return failed("specd_alloc", code);
  fill_rows(region.data);

  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.dtype = SPECD_FLOAT32;
  tensor.num_rows = NUM_ROWS;
  code = specd_bind(engine, SPECD_TARGET_ROWS, &tensor);
  return code == SPECD_OK ? 0 : failed("specd_bind", code);
}

static int check_round(const specd_completion* completion, specd_sequence sequence) {
  const specd_result* result = completion->results;
  if (completion->round_id != ROUND_ID) return wrong("round_id", (long)completion->round_id, 41);
  if (completion->num_results != 1) return wrong("num_results", completion->num_results, 1);
  if (result->sequence != sequence)
    return wrong("sequence", (long)result->sequence, (long)sequence);
  if (result->status != SPECD_STATUS_OK) return wrong("status", result->status, SPECD_STATUS_OK);
  if (result->num_accepted != 1) return wrong("num_accepted", result->num_accepted, 1);
  if (result->num_kept != 2) return wrong("num_kept", result->num_kept, 2);
  if (result->total_kept != 2) return wrong("total_kept", result->total_kept, 2);
  if (result->tokens[0] != ARGMAX[0]) return wrong("tokens[0]", result->tokens[0], ARGMAX[0]);
  if (result->tokens[1] != ARGMAX[1]) return wrong("tokens[1]", result->tokens[1], ARGMAX[1]);
  if (result->finish_reason != SPECD_FINISH_NONE) {
    return wrong("finish_reason", result->finish_reason, SPECD_FINISH_NONE);
  }
  return 0;
}

static int run_round(specd_engine* engine) {
  static const uint32_t target_rows[NUM_ROWS] = {0, 1, 2};
  specd_params params;
  specd_sequence_info info = {.struct_size = sizeof info};
  specd_draft draft = {.struct_size = sizeof draft};
  specd_completion completion = {.struct_size = sizeof completion,
                                 .result_size = sizeof(specd_result)};
  int code;

  specd_params_init(&params);
  params.temperature = 0.0;
  code = specd_open_sequence(engine, "consumer-1", &params, &info);
  if (code != SPECD_OK) return failed("specd_open_sequence", code);
  if (info.verify != SPECD_VERIFY_GREEDY) return wrong("verify", info.verify, SPECD_VERIFY_GREEDY);

  draft.sequence = info.sequence;
  draft.num_nodes = NUM_DRAFTS;
  draft.tokens = DRAFT;
  draft.target_rows = target_rows;
  code = specd_submit(engine, ROUND_ID, &draft, 1);
  if (code != SPECD_OK) return failed("specd_submit", code);

  code = specd_poll(engine, &completion, 10000);
  if (code != SPECD_OK) return failed("specd_poll", code);
  if (check_round(&completion, info.sequence) != 0) return 1;

  code = specd_poll(engine, &completion, 0);
  if (code != SPECD_EMPTY) return wrong("the answer of a second specd_poll", code, SPECD_EMPTY);
  code = specd_close_sequence(engine, info.sequence);
  return code == SPECD_OK ? 0 : failed("specd_close_sequence", code);
}

static int run_argmax(void) {
  float rows[NUM_ROWS * VOCAB_SIZE];
  int32_t ids[NUM_ROWS];
  specd_rows view;
  int code;
  fill_rows(rows);
  specd_rows_init(&view);
  view.data = rows;
  view.vocab_size = VOCAB_SIZE;
  view.num_rows = NUM_ROWS;
  code = specd_argmax(&view, ids, NULL);
  if (code != SPECD_OK) return failed("specd_argmax", code);
  for (int i = 0; i < NUM_ROWS; ++i) {
    if (ids[i] != ARGMAX[i]) return wrong("an argmax", ids[i], ARGMAX[i]);
  }
  return 0;
}

/* Three ids spell "a", "b" and "ab"; the constraint allows "ab" alone, so "b" may not come first.
 */
static int run_grammar(void) {
  static const specd_token tokens[] = {{"a", 1, 0}, {"b", 1, 0}, {"ab", 2, 0}};
  static const specd_ids no_ids = {NULL, 0};
  specd_tokenizer_options from;
  specd_grammar_options options;
  specd_tokenizer* tokenizer = NULL;
  specd_grammar* grammar = NULL;
  specd_matcher* matcher = NULL;
  int32_t mask = 0;
  int code;
  specd_tokenizer_options_init(&from);
  from.vocab_size = VOCAB_SIZE;
  from.tokens.items = tokens;
  from.tokens.count = 3;
  specd_grammar_options_init(&options);
  options.kind = SPECD_GRAMMAR_CHOICE;
  options.text = "[\"ab\"]";
  code = specd_tokenizer_new(&from, &tokenizer);
  if (code == SPECD_OK) code = specd_grammar_compile(tokenizer, &options, &grammar);
  if (code == SPECD_OK) code = specd_matcher_new(grammar, no_ids, &matcher);
  if (code == SPECD_OK) code = specd_matcher_mask(matcher, &mask, 1);
  specd_tokenizer_free(tokenizer);
  specd_grammar_free(grammar);
  specd_matcher_free(matcher);
  if (code != SPECD_OK) return failed("a mask", code);
  return mask == 5 ? 0 : wrong("a mask", mask, 5);
}

int main(void) {
  specd_options options;
  specd_engine* engine = NULL;
  int code, status;

  specd_options_init(&options);
  options.vocab_size = VOCAB_SIZE;
  options.max_batch = 1;
  code = specd_open("embedded:cpu", &options, &engine);
  if (code != SPECD_OK) return failed("specd_open", code);
  status = bind_rows(engine);
  if (status == 0) status = run_round(engine);
  if (status == 0) status = run_argmax();
  if (status == 0) status = run_grammar();
  specd_close(engine);
  if (status == 0) printf("consumer: specd %s verified a round of 2 drafts\n", specd_version());
  return status;
}
