/* An engine that takes as much of the daemon's memory as it can.
 *
 *   greedy_engine URI hello|prompts|rows|alloc|huge|scores
 *
 * hello attaches with a segment of 800 MiB, prompts opens sequences with 2^20 ids and lists that
 * count them, rows has the daemon read a memfd of 2 GiB that nothing was written to, alloc takes 16
 * times 100 MiB, huge takes away a huge page, scores has eight sequences with logprobs=64 publish
 * some 80 MiB. Prints how far it came, and what the daemon said.
 * Exit code: 0 nothing was refused (huge: the round was aborted), 3 refused with EXHAUSTED, 4 this
 * machine cannot do it, 1 anything else. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <specd/specd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  VOCAB_SIZE = 1 << 20,
  NUM_PROMPT = 1 << 20,
  NUM_OPENINGS = 64,
  NUM_ROWS = 512, /* of 4 MiB */
  NUM_DRAFTS = 63,
  NUM_REGIONS = 16,
  REGION_BYTES = 100 << 20,
  SCORED_VOCAB = 2048, /* of the toy tokenizer */
  NUM_SCORED = 8
};

static int end(const char* step, int done, int code) {
  printf("%s: %d done, then %d: %s\n", step, done, code,
         code == SPECD_OK ? "" : specd_last_error());
  if (code == SPECD_OK) return 0;
  return code == SPECD_ERROR_EXHAUSTED ? 3 : 1;
}

static int prompts(specd_engine* engine) {
  int32_t* prompt = malloc(sizeof(int32_t) * NUM_PROMPT);
  specd_params params;
  int code = SPECD_OK;
  int done = 0;
  for (int i = 0; i < NUM_PROMPT; ++i) prompt[i] = i;
  specd_params_init(&params);
  params.temperature = 0;
  params.repetition_penalty = 1.1;
  params.no_repeat_ngram_size = 2;
  params.no_repeat_ngram_window = 64;
  params.prompt_ids.items = prompt;
  params.prompt_ids.count = NUM_PROMPT;
  while (done < NUM_OPENINGS && code == SPECD_OK) {
    char name[16];
    specd_sequence_info info;
    info.struct_size = sizeof(info);
    snprintf(name, sizeof(name), "r%d", done);
    code = specd_open_sequence(engine, name, &params, &info);
    if (code == SPECD_OK) ++done;
  }
  free(prompt);
  return end("prompts", done, code);
}

/* Takes memory for rows until it is refused; nothing writes there. */
static int alloc(specd_engine* engine) {
  specd_region region;
  int code = SPECD_OK;
  int done = 0;
  while (done < NUM_REGIONS && code == SPECD_OK) {
    code = specd_alloc(engine, REGION_BYTES, &region);
    if (code == SPECD_OK) ++done;
  }
  return end("alloc", done, code);
}

/* Has the daemon read a huge page that is not there: the engine makes a hole, and takes the page
 * that was left. There is one page in all, and the mapping of the daemon has reserved it. */
static int huge(specd_engine* engine) {
  const size_t page_bytes = 2 << 20;
  const int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
  const int other = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
  specd_region region;
  specd_tensor tensor;
  specd_params params;
  specd_sequence_info info;
  specd_draft draft;
  specd_completion completion;
  const uint32_t row = 0;
  int code;
  if (fd < 0 || other < 0 || ftruncate(fd, (off_t)page_bytes) != 0 ||
      ftruncate(other, (off_t)page_bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return 4;
  }
  code = specd_import_fd(engine, fd, page_bytes, &region);
  if (code != SPECD_OK) return end("huge", 0, code);
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = 1;
  code = specd_bind(engine, SPECD_TARGET_ROWS, &tensor);
  if (code != SPECD_OK) return end("huge", 1, code);
  specd_params_init(&params);
  params.temperature = 0;
  info.struct_size = sizeof(info);
  code = specd_open_sequence(engine, "huge", &params, &info);
  if (code != SPECD_OK) return end("huge", 2, code);
  if (fallocate(fd, 0, 0, (off_t)page_bytes) != 0 ||
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page_bytes) != 0 ||
      fallocate(other, 0, 0, (off_t)page_bytes) != 0) {
    return 4;
  }
  memset(&draft, 0, sizeof(draft));
  draft.struct_size = sizeof(draft);
  draft.sequence = info.sequence;
  draft.target_rows = &row;
  code = specd_submit(engine, 1, &draft, 1);
  completion.struct_size = sizeof(completion);
  completion.result_size = sizeof(specd_result);
  if (code == SPECD_OK) code = specd_poll(engine, &completion, 60000);
  if (code != SPECD_OK) return end("huge", 3, code);
  printf("status %u\n", completion.results[0].status);
  while (code == SPECD_OK || code == SPECD_EMPTY) {
    specd_engine_stats stats;
    stats.struct_size = sizeof(stats);
    code = specd_get_engine_stats(engine, &stats);
  }
  printf("then %s\n", specd_last_error());
  return completion.results[0].status == SPECD_STATUS_ABORTED ? 0 : 1;
}

static int rows(specd_engine* engine) {
  const uint64_t size_bytes = (uint64_t)NUM_ROWS * VOCAB_SIZE * sizeof(float);
  const int fd = memfd_create("rows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int32_t tokens[NUM_DRAFTS];
  uint32_t row_of[NUM_DRAFTS + 1];
  specd_region region;
  specd_tensor tensor;
  specd_params params;
  specd_sequence_info info;
  int code;
  if (fd < 0 || ftruncate(fd, (off_t)size_bytes) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    perror("memfd");
    return 1;
  }
  code = specd_import_fd(engine, fd, size_bytes, &region);
  if (code != SPECD_OK) return end("rows", 0, code);
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = NUM_ROWS;
  code = specd_bind(engine, SPECD_TARGET_ROWS, &tensor);
  if (code != SPECD_OK) return end("rows", 0, code);
  specd_params_init(&params);
  params.temperature = 0;
  params.max_tokens = 1 << 20;
  params.ignore_eos = 1;
  info.struct_size = sizeof(info);
  code = specd_open_sequence(engine, "rows", &params, &info);
  if (code != SPECD_OK) return end("rows", 0, code);
  memset(tokens, 0, sizeof(tokens)); /* rows of zeros: their argmax is 0 */
  for (int round = 0; round < NUM_ROWS / (NUM_DRAFTS + 1); ++round) {
    specd_draft draft;
    specd_completion completion;
    for (int i = 0; i <= NUM_DRAFTS; ++i) row_of[i] = (uint32_t)(round * (NUM_DRAFTS + 1) + i);
    memset(&draft, 0, sizeof(draft));
    draft.struct_size = sizeof(draft);
    draft.sequence = info.sequence;
    draft.num_nodes = NUM_DRAFTS;
    draft.tokens = tokens;
    draft.target_rows = row_of;
    code = specd_submit(engine, (uint64_t)round, &draft, 1);
    if (code != SPECD_OK) return end("rows", round, code);
    completion.struct_size = sizeof(completion);
    completion.result_size = sizeof(specd_result);
    code = specd_poll(engine, &completion, 60000);
    if (code < 0) return end("rows", round, code);
  }
  return end("rows", NUM_ROWS / (NUM_DRAFTS + 1), SPECD_OK);
}

/* Rounds of eight sequences, whose 64 kept tokens have 65 scores each. */
static int scores(specd_engine* engine) {
  enum { ROUNDS = 200 };
  int32_t tokens[NUM_DRAFTS] = {0}; /* rows of zeros: their argmax is 0 */
  uint32_t row_of[NUM_DRAFTS + 1] = {0};
  specd_draft drafts[NUM_SCORED];
  specd_region region;
  specd_tensor tensor;
  int code = specd_alloc(engine, SCORED_VOCAB * sizeof(float), &region);
  if (code != SPECD_OK) return end("scores", 0, code);
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = 1;
  code = specd_bind(engine, SPECD_TARGET_ROWS, &tensor);
  for (int i = 0; i < NUM_SCORED && code == SPECD_OK; ++i) {
    specd_sequence_info info;
    specd_params params;
    char name[16];
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 1 << 20;
    params.ignore_eos = 1;
    params.logprobs = 64;
    info.struct_size = sizeof(info);
    snprintf(name, sizeof(name), "r%d", i);
    code = specd_open_sequence(engine, name, &params, &info);
    memset(&drafts[i], 0, sizeof(drafts[i]));
    drafts[i].struct_size = sizeof(drafts[i]);
    drafts[i].sequence = info.sequence;
    drafts[i].num_nodes = NUM_DRAFTS;
    drafts[i].tokens = tokens;
    drafts[i].target_rows = row_of;
  }
  for (int round = 0; round < ROUNDS && code >= 0; ++round) {
    specd_completion completion;
    code = specd_submit(engine, (uint64_t)round, drafts, NUM_SCORED);
    completion.struct_size = sizeof(completion);
    completion.result_size = sizeof(specd_result);
    if (code == SPECD_OK) code = specd_poll(engine, &completion, 60000);
    if (code >= 0 && completion.results[0].num_kept != NUM_DRAFTS + 1) return 1;
  }
  return end("scores", ROUNDS, code >= 0 ? SPECD_OK : code);
}

int main(int argc, char** argv) {
  specd_options options;
  specd_engine* engine = NULL;
  int code;
  if (argc != 3) return 2;
  specd_options_init(&options);
  options.max_batch = options.max_sequences = NUM_OPENINGS;
  options.vocab_size = VOCAB_SIZE;
  if (strcmp(argv[2], "huge") == 0) options.vocab_size = 1024;
  if (strcmp(argv[2], "scores") == 0) {
    options.vocab_size = SCORED_VOCAB;
    options.max_draft = NUM_DRAFTS;
    options.max_scores_per_token = 65;
    options.max_batch = options.max_sequences = NUM_SCORED;
  }
  options.timeout_ms = 60000;
  if (strcmp(argv[2], "hello") == 0) {
    options.max_batch = options.max_sequences = 4096;
    options.max_draft = 64;
    options.ring_depth = 32;
    options.max_scores_per_token = 4;
  }
  if (strcmp(argv[2], "rows") == 0) options.max_draft = NUM_DRAFTS;
  code = specd_open(argv[1], &options, &engine);
  if (code != SPECD_OK || strcmp(argv[2], "hello") == 0)
    code = end("hello", 0, code);
  else if (strcmp(argv[2], "rows") == 0)
    code = rows(engine);
  else if (strcmp(argv[2], "alloc") == 0)
    code = alloc(engine);
  else if (strcmp(argv[2], "scores") == 0)
    code = scores(engine);
  else if (strcmp(argv[2], "huge") == 0)
    code = huge(engine);
  else
    code = prompts(engine);
  if (engine != NULL) specd_close(engine);
  return code;
}
