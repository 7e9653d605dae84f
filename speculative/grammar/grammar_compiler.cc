#include "speculative/grammar/grammar_compiler.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "fmt/format.h"
#include "speculative/grammar/specd_backend.h"
#include "speculative/grammar/xgrammar_backend.h"

namespace specd::grammar {
namespace {

using Compiled = absl::StatusOr<std::shared_ptr<const CompiledGrammar>>;

std::string KeyOf(const GrammarRequest& request) {
  return fmt::format("{} {} {} {} {}", static_cast<uint32_t>(request.kind),
                     static_cast<uint32_t>(request.whitespace), request.lenient,
                     static_cast<uint32_t>(request.backend), request.text);
}

class CachingCompiler : public GrammarCompiler {
 public:
  CachingCompiler(const GrammarCompilerOptions& options, std::unique_ptr<GrammarBackend> own,
                  std::shared_ptr<const ReasoningMarkers> reasoning)
      : options_(options), own_(std::move(own)), reasoning_(std::move(reasoning)) {}

  std::shared_ptr<const ReasoningMarkers> reasoning() const override { return reasoning_; }

  const ForcedTokenFinder* forced_tokens() const override {
    // Pairs with the release in Compile: a finder that is seen is complete.
    return forced_.load(std::memory_order_acquire);
  }

  Compiled Compile(const GrammarRequest& request) override {
    // The trie takes tens of milliseconds, which a round could not wait for.
    std::call_once(forced_once_, [this] {
      finder_ = std::make_unique<ForcedTokenFinder>(
          TokenTrie::Build(*options_.vocabulary, options_.vocab_size));
      forced_.store(finder_.get(), std::memory_order_release);
    });
    const std::string key = KeyOf(request);
    std::shared_ptr<Entry> entry;
    {
      std::unique_lock lock(mutex_);
      if (!options_.memory->HasRoomForGrammar()) DropUnused();
      if (!options_.memory->HasRoomForGrammar()) {
        return absl::ResourceExhaustedError(
            fmt::format("the constraints that sequences follow take {} MiB, and no more is opened "
                        "past three quarters of {} MiB; close sequences, or try again later",
                        options_.memory->size_bytes() >> 20, options_.memory->bytes_max() >> 20));
      }
      const auto found = places_.find(key);
      if (found != places_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        entry = *found->second;
        changed_.wait(lock, [&] { return entry->is_done; });
        return entry->compiled;
      }
      entry = std::make_shared<Entry>();
      entry->key = key;
      const auto place = places_.emplace(key, entries_.end()).first;
      try {
        entries_.push_front(entry);
      } catch (...) {
        places_.erase(place);
        throw;
      }
      place->second = entries_.begin();
    }
    Compiled compiled = absl::UnknownError("compiling");
    try {
      compiled = CompileNow(request);
    } catch (const std::exception& error) {
      compiled = absl::UnavailableError(fmt::format(
          "the constraint could not be compiled now: {}; try again later", error.what()));
    } catch (...) {
      compiled =
          absl::UnavailableError("the constraint could not be compiled now; try again later");
    }
    // The same request may succeed later, and others wait for this one.
    const bool is_kept = compiled.status().code() != absl::StatusCode::kUnavailable;
    if (!is_kept) compiled = absl::ResourceExhaustedError(compiled.status().message());
    const std::lock_guard lock(mutex_);
    entry->compiled = std::move(compiled);
    entry->is_done = true;
    changed_.notify_all();
    if (!is_kept) Forget(*entry);
    DropOldest();
    return entry->compiled;
  }

 private:
  struct Entry {
    std::string key;
    bool is_done = false;
    Compiled compiled = absl::UnknownError("compiling");
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  // An error is small, and is kept too: the same wrong schema is not compiled again and again.
  static constexpr size_t kEntriesMax = 4096;

  Compiled CompileNow(const GrammarRequest& request) {
    if (request.backend == BackendChoice::kXgrammar) return CompileByXgrammar(request);
    Compiled compiled = own_->Compile(request);
    const bool may_ask = request.backend == BackendChoice::kAuto && !request.lenient;
    if (!may_ask || compiled.status().code() != absl::StatusCode::kUnimplemented) return compiled;
    // Where xgrammar is not installed, the reason why specd's own engine refuses is the answer.
    // Where it has no time, that is: this answer is not kept.
    Compiled other = CompileByXgrammar(request);
    const bool is_busy = other.status().code() == absl::StatusCode::kUnavailable;
    return other.ok() || is_busy ? other : compiled;
  }

  Compiled CompileByXgrammar(const GrammarRequest& request) {
    std::call_once(xgrammar_once_, [this] {
      xgrammar_ =
          LoadXgrammar({.vocabulary = options_.vocabulary, .vocab_size = options_.vocab_size});
    });
    if (!xgrammar_.ok()) return xgrammar_.status();
    return (*xgrammar_)->Compile(request);
  }

  // The entry may be dropped already, and its key be another's.
  void Forget(const Entry& entry) {
    const auto found = places_.find(entry.key);
    if (found == places_.end() || found->second->get() != &entry) return;
    entries_.erase(found->second);
    places_.erase(found);
  }

  // Drops the grammars that no sequence follows.
  void DropUnused() {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const bool is_unused = (*entry)->is_done && (*entry)->compiled.ok() &&
                             (*entry)->compiled.value().use_count() == 1;
      if (is_unused) places_.erase((*entry)->key);
      entry = is_unused ? entries_.erase(entry) : std::next(entry);
    }
  }

  // A grammar grows as its states are met, so sizes are read anew. A grammar that is being compiled
  // stays.
  void DropOldest() {
    size_t size = 0;
    size_t count = 0;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if ((*entry)->is_done) {
        size += (*entry)->key.size();
        if ((*entry)->compiled.ok()) size += (*entry)->compiled.value()->size_bytes();
      }
      ++count;
      const bool is_kept = !(*entry)->is_done || count == 1 ||
                           (size <= options_.cache_bytes && count <= kEntriesMax);
      if (is_kept) {
        ++entry;
      } else {
        places_.erase((*entry)->key);
        entry = entries_.erase(entry);
      }
    }
  }

  const GrammarCompilerOptions options_;
  const std::unique_ptr<GrammarBackend> own_;
  const std::shared_ptr<const ReasoningMarkers> reasoning_;
  std::once_flag forced_once_;
  std::unique_ptr<ForcedTokenFinder> finder_;
  std::atomic<const ForcedTokenFinder*> forced_{nullptr};
  std::once_flag xgrammar_once_;
  absl::StatusOr<std::shared_ptr<GrammarBackend>> xgrammar_ = absl::UnknownError("not loaded");

  std::mutex mutex_;
  std::condition_variable changed_;
  Entries entries_;  // the one used last is at the front
  // If memory runs out while an entry is added, the map is as it was; Abseil's would be broken.
  std::unordered_map<std::string, Entries::iterator> places_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<GrammarCompiler>> GrammarCompiler::Create(
    const GrammarCompilerOptions& options) {
  absl::StatusOr<std::unique_ptr<SpecdBackend>> own =
      SpecdBackend::Create({.vocabulary = options.vocabulary,
                            .vocab_size = options.vocab_size,
                            .mask_bytes = options.cache_bytes,
                            .memory = options.memory});
  if (!own.ok()) return own.status();
  std::shared_ptr<const ReasoningMarkers> reasoning;
  if (!options.reasoning.end.empty()) {
    absl::StatusOr<std::shared_ptr<const ReasoningMarkers>> markers =
        ReasoningMarkers::Create(options.reasoning, options.vocabulary, options.vocab_size);
    if (!markers.ok()) return markers.status();
    reasoning = *std::move(markers);
  }
  return std::make_shared<CachingCompiler>(options, *std::move(own), std::move(reasoning));
}

}  // namespace specd::grammar
