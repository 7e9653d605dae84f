// specd-llama-reference decodes greedily with llama.cpp alone, for the tests to compare with.
//
// Usage: specd-llama-reference MODEL WIDTH COUNT ROWS_FILE ID,ID,...
//
// The ids are the prompt. After it each forward has one token and WIDTH - 1 places of padding. The
// COUNT new ids go to stdout, and the rows that they come from, as floats, to ROWS_FILE.

#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int32_t kPositions = 1024;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "specd-llama-reference: %s\n", what);
  std::exit(1);
}

std::vector<llama_token> ReadIds(const char* text) {
  std::vector<llama_token> ids;
  for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    ids.push_back(static_cast<llama_token>(std::strtol(text, &end, 10)));
    if (end == text) Fail("the prompt is no list of ids");
  }
  if (ids.empty()) Fail("the prompt is empty");
  return ids;
}

// Decodes `tokens` and padding from `position` on. Returns the row of the last token.
const float* Decode(llama_context* context, std::vector<llama_token> tokens, size_t width,
                    int32_t position) {
  const size_t num_tokens = tokens.size();
  tokens.resize(std::max(width, num_tokens), tokens.back());
  llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = position + static_cast<int32_t>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i + 1 == num_tokens;
  }
  if (llama_decode(context, batch) != 0) Fail("llama_decode failed");
  llama_batch_free(batch);
  const int32_t length = position + static_cast<int32_t>(num_tokens);
  if (!llama_memory_seq_rm(llama_get_memory(context), 0, length, -1)) Fail("the cache is not cut");
  return llama_get_logits_ith(context, static_cast<int32_t>(num_tokens) - 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) Fail("usage: MODEL WIDTH COUNT ROWS_FILE ID,ID,...");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) Fail("the model cannot be loaded");
  const size_t width = std::strtoul(argv[2], nullptr, 10);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kPositions;
  params.n_threads = params.n_threads_batch = 1;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) Fail("no context");
  const int32_t vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::FILE* file = std::fopen(argv[4], "wb");
  if (file == nullptr) Fail("ROWS_FILE cannot be written");

  std::vector<llama_token> next = ReadIds(argv[5]);
  int32_t length = 0;
  for (long count = std::strtol(argv[3], nullptr, 10); count > 0; --count) {
    const float* row = Decode(context, next, width, length);
    length += static_cast<int32_t>(next.size());
    std::fwrite(row, sizeof(float), static_cast<size_t>(vocab_size), file);
    next = {static_cast<llama_token>(std::max_element(row, row + vocab_size) - row)};
    std::printf("%d%c", next[0], count > 1 ? ' ' : '\n');
  }
  std::fclose(file);
  llama_free(context);
  llama_model_free(model);
}
