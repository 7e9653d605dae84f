/* An engine that takes as much of the daemon's memory as it can.
 *
 *   greedy_engine URI hello|prompts|rows
 *
 * hello attaches with a segment of 800 MiB, prompts opens sequences with 2^20 ids and lists that
 * count them, rows has the daemon read a memfd of 2 GiB that nothing was written to. Prints how far
 * it came, and what the daemon said. Exit code: 0 nothing was refused, 3 refused with EXHAUSTED,
 * 1 anything else. */
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
  NUM_DRAFTS = 63
};

static int end(const char* step, int done, int code) {
  printf("%s: %d done, then %d: %s\n", step, done, code, code == SPECD_OK ? "" : specd_last_error());
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

int main(int argc, char** argv) {
  specd_options options;
  specd_engine* engine = NULL;
  int code;
  if (argc != 3) return 2;
  specd_options_init(&options);
  options.vocab_size = VOCAB_SIZE;
  options.timeout_ms = 60000;
  options.max_batch = options.max_sequences = NUM_OPENINGS;
  if (strcmp(argv[2], "hello") == 0) {
    options.max_batch = options.max_sequences = 4096;
    options.max_draft = 64;
    options.ring_depth = 32;
    options.max_scores_per_token = 4;
  }
  if (strcmp(argv[2], "rows") == 0) options.max_draft = NUM_DRAFTS;
  code = specd_open(argv[1], &options, &engine);
  if (code != SPECD_OK || strcmp(argv[2], "hello") == 0) code = end("hello", 0, code);
  else code = strcmp(argv[2], "rows") == 0 ? rows(engine) : prompts(engine);
  if (engine != NULL) specd_close(engine);
  return code;
}
