// Files of every kind through the one door. What the texts of their ids are is compared with
// tiktoken and mistral-common in tests/oracle/rank_file_oracle.py; here are the refusals.
#include "detokenizer/tokenizer_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/mentions.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

std::string ErrorOf(const std::string& path) {
  const auto vocabulary = OpenTokenizer(path);
  REQUIRE_FALSE(vocabulary.ok());
  const std::string message(vocabulary.status().message());
  CHECK(message.find(path.substr(0, path.rfind('/'))) == 0);
  return message;
}

constexpr char kConfig[] = R"({"added_tokens_decoder": {"3": {"content": "<eos>", "special": true},
    "5": {"content": "<think>", "special": false}}})";

// One token and one special token, of any version.
std::string Tekken(const std::string& version, const std::string& vocab_size = "2") {
  return R"({"config": {"pattern": "", "default_vocab_size": )" + vocab_size +
         R"(, "default_num_special_tokens": 1, "version": ")" + version +
         R"("}, "special_tokens": [{"rank": 0, "token_str": "<s>", "is_control": true}],
         "vocab": [{"rank": 0, "token_bytes": "/w==", "token_str": null}]})";
}

TEST_SUITE("unit") {
  TEST_CASE("rank file: ids are ranks, special tokens come from the tokenizer_config.json") {
    const TemporaryFolder folder;
    folder.Write("tokenizer_config.json", kConfig);
    // "!" and the byte FF; any order, line ends of Windows, blank lines.
    const auto read = OpenTokenizer(folder.Write("any.name", "\n/w== 2\r\nIQ== 0\n"));
    REQUIRE(read.ok());
    CHECK(read->size() == 6);
    CHECK(read->Bytes(0) == "!");
    CHECK_FALSE(read->Contains(1));
    CHECK(read->Bytes(2) == "\xFF");
    CHECK_FALSE(read->IsAdded(2));
    CHECK(read->Bytes(3) == "<eos>");
    CHECK(read->IsSpecial(3));
    CHECK_FALSE(read->IsSpecial(5));
    CHECK(read->FindAdded("<think>") == 5);
    CHECK(read->MinColumns() == 3);
  }

  TEST_CASE("rank file: without special tokens it is refused with the remedy") {
    const TemporaryFolder folder;
    for (const char* name : {"my.tiktoken", "cl100k_base.tiktoken", "tokenizer.model"}) {
      const std::string error = ErrorOf(folder.Write(name, "IQ== 0\n/w== 1"));
      CHECK(Mentions(error, "2 ranks and no special tokens"));
      CHECK(Mentions(error, "cl100k_base.tiktoken (100256 ranks)"));
      CHECK(Mentions(error, "put the model's tokenizer_config.json"));
    }
  }

  // As the published code of the models numbers them.
  TEST_CASE("rank file: the special tokens of Qwen 1 and Llama 3") {
    const auto open = [](const TemporaryFolder& folder, const char* name, int count) {
      std::string ranks;
      for (int rank = 0; rank < count; ++rank) ranks += "IQ== " + std::to_string(rank) + "\n";
      const auto read = OpenTokenizer(folder.Write(name, ranks));
      REQUIRE(read.ok());
      return *read;
    };
    const TemporaryFolder folder;
    const Vocabulary qwen = open(folder, "qwen.tiktoken", 151643);
    CHECK(qwen.size() == 151851);
    CHECK(qwen.FindAdded("<|endoftext|>") == 151643);
    CHECK(qwen.FindAdded("<|im_end|>") == 151645);
    CHECK(qwen.FindAdded("<|extra_0|>") == 151646);
    CHECK(qwen.FindAdded("<|extra_204|>") == 151850);
    const Vocabulary llama = open(folder, "tokenizer.model", 128000);
    CHECK(llama.size() == 128256);
    CHECK(llama.FindAdded("<|begin_of_text|>") == 128000);
    CHECK(llama.FindAdded("<|reserved_special_token_3|>") == 128005);
    CHECK(llama.FindAdded("<|start_header_id|>") == 128006);
    CHECK(llama.FindAdded("<|eot_id|>") == 128009);
    CHECK(llama.FindAdded("<|reserved_special_token_250|>") == 128255);
    CHECK(llama.IsSpecial(128009));
  }

  TEST_CASE("rank file: a wrong line is named by its number") {
    const TemporaryFolder folder;
    folder.Write("tokenizer_config.json", kConfig);
    const auto error = [&folder](const std::string& second) {
      return ErrorOf(folder.Write("ranks", "IQ== 0\n" + second));
    };
    for (const char* line : {"IQ==", "IQ== ", "IQ==1", "IQ== -1", "IQ== +1", "IQ== 1 2", " 1",
                             "I!== 1", "IQ 1", "IR== 1", "IQ== 1048576", "IQ== 99999999999"}) {
      CHECK(Mentions(error(line), "line 2 is \"" + std::string(line) + "\", expected base64"));
    }
    CHECK(Mentions(error("/w== 0"), "line 2 has the rank 0, which an earlier line has"));
    CHECK(Mentions(error("/w== 3"), "\"<eos>\" has the id 3, which stands for another token"));
  }

  TEST_CASE("rank file: a wrong tokenizer_config.json is named") {
    const TemporaryFolder folder;
    const std::string ranks = folder.Write("ranks", "IQ== 0\n");
    const auto error = [&](const std::string& config) {
      folder.Write("tokenizer_config.json", config);
      return ErrorOf(ranks);
    };
    CHECK(Mentions(error("{}"), "added_tokens_decoder is missing"));
    CHECK(Mentions(error("{"), "tokenizer_config.json"));
    CHECK(Mentions(error(R"({"added_tokens_decoder": {"x": {}}})"), "[\"x\"] has no id"));
    CHECK(Mentions(error(R"({"added_tokens_decoder": {"1048576": {}}})"), "has no id"));
    CHECK(Mentions(error(R"({"added_tokens_decoder": {"-1": {}}})"), "has no id"));
    CHECK(Mentions(error(R"({"added_tokens_decoder": {"1": {"content": "a"}}})"),
                   "a special, which"));
    CHECK(Mentions(error(R"({"added_tokens_decoder": {"1": 7}})"), "[\"1\"] needs a content"));
    folder.Write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
    CHECK(OpenTokenizer(ranks).ok());
  }

  TEST_CASE("tekken: special tokens come first, an unknown version is refused by name") {
    const TemporaryFolder folder;
    const auto read = OpenTokenizer(folder.Write("any.name", Tekken("v11")));
    REQUIRE(read.ok());
    CHECK(read->Bytes(0) == "<s>");
    CHECK(read->IsSpecial(0));
    CHECK(read->Bytes(1) == "\xFF");
    CHECK(read->size() == 2);
    const std::string error = ErrorOf(folder.Write("t", Tekken("v14")));
    CHECK(Mentions(error,
                   "this is a tekken file of version \"v14\", known are v3, v7, v11, v13, v15"));
  }

  TEST_CASE("tekken: what does not fit together is refused by field") {
    const TemporaryFolder folder;
    const auto error = [&folder](const std::string& json, const std::string& from,
                                 const std::string& to) {
      std::string changed = json;
      REQUIRE(changed.find(from) != std::string::npos);
      return ErrorOf(folder.Write("t", changed.replace(changed.find(from), from.size(), to)));
    };
    const std::string good = Tekken("v11");
    CHECK(Mentions(ErrorOf(folder.Write("t", Tekken("v11", "3"))), "vocab has 1 tokens"));
    CHECK(Mentions(ErrorOf(folder.Write("t", Tekken("v11", "0"))),
                   "default_num_special_tokens is 1"));
    CHECK(Mentions(ErrorOf(folder.Write("t", Tekken("v11", "1048577"))),
                   "allowed are integers 0..1048"));
    CHECK(Mentions(ErrorOf(folder.Write("t", Tekken("v11", "-1"))), "default_vocab_size is -1"));
    CHECK(Mentions(error(good, "/w==", "/w="), "vocab[0].token_bytes is \"/w=\", expected base64"));
    CHECK(Mentions(error(good, R"("rank": 0, "token_b)", R"("rank": 1, "token_b)"),
                   "needs the rank 0"));
    CHECK(Mentions(error(good, R"("rank": 0, "token_s)", R"("rank": 1, "token_s)"),
                   "special_tokens[0].rank is 1, expected 0"));
    CHECK(Mentions(error(good, R"("token_str": "<s>",)", ""), "special_tokens[0] needs"));
    CHECK(Mentions(error(good, R"("special_tokens")", R"("other")"), "special_tokens is missing"));
    CHECK(Mentions(error(good, R"("version")", R"("other")"), "config.version is missing"));
  }

  TEST_CASE("tokenizer.json: it is known by its fields") {
    const TemporaryFolder folder;
    // A wrong class in the tokenizer_config.json beside it changes nothing.
    folder.Write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
    const auto read = OpenTokenizer(folder.Write("any.name", R"({"version": "1.0",
        "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"\u0120b": 1}}})"));
    REQUIRE(read.ok());
    CHECK(read->Bytes(1) == " b");
    CHECK_FALSE(read->HasFront());
  }

  TEST_CASE("a file of another kind is refused by name") {
    const TemporaryFolder folder;
    CHECK(Mentions(ErrorOf(folder.Write("m", "PK\x03\x04zip")), "this is a ZIP archive"));
    CHECK(Mentions(ErrorOf(folder.Write("m", "\x1F\x8B")), "this is a gzip file"));
    CHECK(Mentions(ErrorOf(folder.Write("m", kConfig)), "this is a tokenizer_config.json"));
    CHECK(Mentions(ErrorOf(folder.Write("m", "version https://git-lfs.github.com/spec/v1")),
                   "Git LFS pointer"));
    CHECK(Mentions(ErrorOf(folder.Write("m", "")), "the file is empty"));
    CHECK(Mentions(ErrorOf(folder.Write("m", "some words")), "begins with \"some words\""));
  }

  TEST_CASE("a path that cannot be read is refused by its kind") {
    const TemporaryFolder folder;
    const std::string missing = folder.path() + "/missing.json";
    const auto refused = OpenTokenizer(missing);
    CHECK(refused.status().code() == absl::StatusCode::kNotFound);
    CHECK(std::string(refused.status().message()) ==
          missing +
              ": cannot read the tokenizer file (No such file or directory); name a readable "
              "tokenizer.json");

    // Bug: a FIFO let the load wait without end, and the program could not even be stopped.
    const std::string fifo = folder.path() + "/fifo";
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    for (const auto& [bad_path, kind] :
         {std::pair(fifo, "a FIFO"), std::pair(folder.path(), "a directory"),
          std::pair(std::string("/dev/zero"), "a character device")}) {
      const auto of_kind = OpenTokenizer(bad_path);
      CHECK(of_kind.status().code() == absl::StatusCode::kInvalidArgument);
      CHECK(std::string(of_kind.status().message()) ==
            bad_path + ": the tokenizer file is " + kind +
                ", from which a read may wait without end; copy it into a regular file and name "
                "that one");
    }
  }

  // The file beside the one that is named is no less able to block.
  TEST_CASE("rank file: a tokenizer_config.json that is no regular file is refused") {
    const TemporaryFolder folder;
    const std::string config = folder.path() + "/tokenizer_config.json";
    REQUIRE(mkfifo(config.c_str(), 0600) == 0);
    CHECK(Mentions(ErrorOf(folder.Write("ranks", "IQ== 0\n")),
                   config + ": the file of special tokens is a FIFO"));
  }

  TEST_CASE("a file over 256 MiB is refused without reading on") {
    const TemporaryFolder folder;
    const std::string path = folder.Write("large", "{");
    std::filesystem::resize_file(path, (std::uintmax_t{256} << 20) + 1);  // sparse
    const std::string message = ErrorOf(path);
    CHECK(Mentions(message, "larger than 268435456 bytes"));
    CHECK(Mentions(message, "tokenizer.json of a model"));
  }
}

}  // namespace
}  // namespace specd
