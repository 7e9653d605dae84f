/* An engine that uses what the toy engine does not: several sequences of one opening with a long
 * prompt, penalties, masks, logprobs, sampled drafts under block verification, a fork, padding.
 * Prints every kept token with its scores, so that a test can compare two ways of running it bit
 * for bit, and checks what must hold however it is run.
 *
 *   features_engine URI [THREADS] */
#include <math.h>
#include <specd/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  VOCAB_SIZE = 2048,
  NUM_STREAMS = 3,
  NUM_DRAFTS = 3,
  ROWS_OF_ONE = NUM_DRAFTS + 1,
  MASK_WORDS = VOCAB_SIZE / 32,
  NUM_PROMPT = 131072,
  MAX_TOKENS = 40,
  NUM_SCORES = 5
};

static const char* NAMES[NUM_STREAMS] = {"features", "features#1", "fork"};

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "features_engine: %s: %s\n", what, specd_last_error());
  exit(1);
}

/* Steele and Vigna, splitmix64: rows that depend on their numbers alone. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static void fill(float* row, uint64_t key) {
  for (int i = 0; i < VOCAB_SIZE; ++i) {
    row[i] = (float)(mix(key * VOCAB_SIZE + (uint64_t)i) >> 52) / 512.0f; /* 0 .. 8 */
  }
}

static void* bind(specd_engine* engine, int role, size_t row_bytes) {
  specd_region region;
  specd_tensor tensor;
  check(specd_alloc(engine, NUM_STREAMS * ROWS_OF_ONE * row_bytes, &region) == SPECD_OK, "alloc");
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = NUM_STREAMS * ROWS_OF_ONE;
  check(specd_bind(engine, role, &tensor) == SPECD_OK, "bind");
  return region.data;
}

static void open_two(specd_engine* engine, specd_sequence_info* infos) {
  static int32_t prompt[NUM_PROMPT];
  static const int32_t chosen[] = {7};
  static const int32_t bias_ids[] = {5};
  static const float bias[] = {2.0f};
  specd_params params;
  for (int i = 0; i < NUM_PROMPT; ++i) prompt[i] = i % 1000;
  specd_params_init(&params);
  params.n = 2;
  params.has_seed = 1;
  params.seed = 11;
  params.temperature = 0.8;
  params.top_p = 0.97;
  params.verify = SPECD_VERIFY_BLOCK;
  params.repetition_penalty = 1.1;
  params.presence_penalty = 0.5;
  params.logit_bias_ids.items = bias_ids;
  params.logit_bias_ids.count = 1;
  params.logit_bias.items = bias;
  params.logit_bias.count = 1;
  params.prompt_ids.items = prompt;
  params.prompt_ids.count = NUM_PROMPT;
  params.max_tokens = MAX_TOKENS;
  params.ignore_eos = 1;
  params.logprobs = NUM_SCORES - 2;
  params.logprobs_mode = SPECD_PROCESSED_LOGPROB;
  params.logprob_token_ids.items = chosen;
  params.logprob_token_ids.count = 1;
  check(specd_open_sequence(engine, NAMES[0], &params, infos) == SPECD_OK, "open_sequence");
  check(infos[1].seed == 12, "the second seed");
}

struct stream {
  specd_sequence sequence;
  uint32_t kept;
  int finished;
  int32_t tokens[NUM_DRAFTS];
  uint32_t rows[ROWS_OF_ONE];
  int32_t mask_rows[ROWS_OF_ONE];
};

/* Rows of this stream's places, drafts drawn from the draft rows, a mask for every other place. */
static void prepare(struct stream* stream, int index, float* target, float* draft,
                    uint32_t* masks) {
  specd_rows rows;
  specd_sampling sampling;
  const uint64_t seed = 1000 + (uint64_t)index;
  const uint64_t round_base = (uint64_t)stream->kept;
  uint64_t positions[NUM_DRAFTS];
  for (int i = 0; i < ROWS_OF_ONE; ++i) {
    const int row = index * ROWS_OF_ONE + i;
    const uint64_t key = (uint64_t)stream->kept + (uint64_t)i;
    stream->rows[i] = (uint32_t)row;
    stream->mask_rows[i] = i % 2 == 0 ? row : -1;
    fill(target + (size_t)row * VOCAB_SIZE, key);
    fill(draft + (size_t)row * VOCAB_SIZE, key / 2);
    for (int word = 0; word < MASK_WORDS; ++word) {
      masks[row * MASK_WORDS + word] = (uint32_t)(mix(key * MASK_WORDS + (uint64_t)word + 99) | 1);
    }
    if (i < NUM_DRAFTS) positions[i] = key;
  }
  specd_rows_init(&rows);
  rows.data = draft + (size_t)index * ROWS_OF_ONE * VOCAB_SIZE;
  rows.vocab_size = VOCAB_SIZE;
  rows.num_rows = NUM_DRAFTS;
  specd_sampling_init(&sampling);
  sampling.seed.items = &seed;
  sampling.position.items = positions;
  sampling.position.stride = 1;
  sampling.round_base.items = &round_base;
  check(specd_sample(&rows, &sampling, stream->tokens, NULL) == SPECD_OK, "sample");
}

static void take(struct stream* stream, int index, const specd_result* result,
                 const uint32_t* masks) {
  check(result->status == SPECD_STATUS_OK, "the status of a round");
  check(result->scores_per_token == NUM_SCORES, "scores_per_token");
  for (uint32_t i = 0; i < result->num_kept; ++i) {
    const int32_t id = result->tokens[i];
    const specd_token_score* scores = result->scores + i * NUM_SCORES;
    const int32_t mask_row = stream->mask_rows[i];
    check(id >= 0 && id < VOCAB_SIZE, "an id");
    check(mask_row < 0 || (masks[mask_row * MASK_WORDS + id / 32] >> (id % 32) & 1) == 1,
          "an id that the mask forbids");
    check(scores[0].id == id && scores[0].value > -INFINITY, "a token's own score");
    check(scores[1].rank == 1 && scores[NUM_SCORES - 1].id == 7, "the other scores");
    printf("%s %d", NAMES[index], id);
    for (int j = 0; j < NUM_SCORES; ++j) {
      printf(" %d:%a:%d", scores[j].id, (double)scores[j].value, scores[j].rank);
    }
    printf("\n");
  }
  stream->kept = result->total_kept;
  stream->finished = result->finish_reason != SPECD_FINISH_NONE;
}

/* One round over those of the first num_streams streams that run; 0 when none does. */
static int run_round(specd_engine* engine, struct stream* streams, int num_streams, float* target,
                     float* draft, uint32_t* masks) {
  static const uint8_t kinds[NUM_DRAFTS] = {SPECD_SAMPLED, SPECD_SAMPLED, SPECD_SAMPLED};
  specd_draft drafts[NUM_STREAMS + 1];
  int indices[NUM_STREAMS];
  uint32_t count = 0;
  specd_completion completion = {.struct_size = sizeof completion,
                                 .result_size = sizeof(specd_result)};
  memset(drafts, 0, sizeof drafts);
  for (int i = 0; i < num_streams; ++i) {
    if (streams[i].finished) continue;
    prepare(&streams[i], i, target, draft, masks);
    drafts[count].struct_size = sizeof drafts[count];
    drafts[count].sequence = streams[i].sequence;
    drafts[count].num_nodes = NUM_DRAFTS;
    drafts[count].tokens = streams[i].tokens;
    drafts[count].kinds = kinds;
    drafts[count].target_rows = streams[i].rows;
    drafts[count].draft_rows = streams[i].rows;
    drafts[count].mask_rows = streams[i].mask_rows;
    indices[count++] = i;
  }
  if (count == 0) return 0;
  check(specd_submit(engine, 1, drafts, count) == SPECD_OK, "submit");
  check(specd_poll(engine, &completion, 60000) == SPECD_OK, "poll");
  for (uint32_t i = 0; i < count; ++i) {
    take(&streams[indices[i]], indices[i], &completion.results[i], masks);
  }
  return 1;
}

/* A round as a batch of fixed size brings it for a request that is still in its prefill. */
static void pad(specd_engine* engine, specd_sequence sequence) {
  specd_draft padding = {.struct_size = sizeof padding};
  specd_completion completion = {.struct_size = sizeof completion,
                                 .result_size = sizeof(specd_result)};
  padding.sequence = sequence;
  padding.flags = SPECD_DISCARD;
  check(specd_submit(engine, 3, &padding, 1) == SPECD_OK, "submit of padding");
  check(specd_poll(engine, &completion, 60000) == SPECD_OK, "poll of padding");
  check(completion.results[0].num_kept == 0, "padding");
}

int main(int argc, char** argv) {
  specd_engine* engine;
  specd_options options;
  specd_engine_stats stats;
  specd_sequence_info infos[2] = {{.struct_size = sizeof infos[0]},
                                  {.struct_size = sizeof infos[0]}};
  specd_sequence_info fork = {.struct_size = sizeof fork};
  struct stream streams[NUM_STREAMS];
  const uint64_t fork_seed = 77;
  check(argc >= 2, "usage: features_engine URI [THREADS]");
  specd_options_init(&options);
  options.vocab_size = VOCAB_SIZE;
  options.max_batch = NUM_STREAMS + 1;
  options.max_draft = NUM_DRAFTS;
  options.max_scores_per_token = NUM_SCORES;
  if (argc > 2) options.threads = (uint32_t)atoi(argv[2]);
  /* A daemon has --eos_tokens. The sequences ignore EOS, which needs one to ignore. */
  static const int32_t eos[] = {0};
  if (strncmp(argv[1], "embedded:", 9) == 0) {
    options.eos_token_ids.items = eos;
    options.eos_token_ids.count = 1;
  }
  check(specd_open(argv[1], &options, &engine) == SPECD_OK, "open");
  float* target = bind(engine, SPECD_TARGET_ROWS, VOCAB_SIZE * sizeof(float));
  float* draft = bind(engine, SPECD_DRAFT_ROWS, VOCAB_SIZE * sizeof(float));
  uint32_t* masks = bind(engine, SPECD_GRAMMAR_MASK, MASK_WORDS * sizeof(uint32_t));
  memset(streams, 0, sizeof streams);
  open_two(engine, infos);
  streams[0].sequence = infos[0].sequence;
  streams[1].sequence = infos[1].sequence;
  for (int i = 0; i < 3; ++i) run_round(engine, streams, 2, target, draft, masks);
  pad(engine, streams[0].sequence);
  check(specd_fork(engine, streams[0].sequence, NAMES[2], &fork_seed, &fork) == SPECD_OK, "fork");
  streams[2].sequence = fork.sequence;
  streams[2].kept = streams[0].kept;
  printf("fork at %u\n", (unsigned)streams[0].kept);
  while (run_round(engine, streams, NUM_STREAMS, target, draft, masks)) {
  }
  for (int i = 0; i < NUM_STREAMS; ++i) check(streams[i].kept == MAX_TOKENS, "max_tokens");
  specd_engine_stats_init(&stats);
  check(specd_get_engine_stats(engine, &stats) == SPECD_OK, "get_engine_stats");
  check(stats.discarded == 1 && stats.invalid_records == 0 && stats.bad_tokens == 0, "counters");
  check(stats.accepted > 0 && stats.accepted < stats.drafted, "accepted drafts");
  printf("rounds %u drafted %u accepted %u\n", (unsigned)stats.rounds, (unsigned)stats.drafted,
         (unsigned)stats.accepted);
  specd_close(engine);
  return 0;
}
