#include "speculative/grammar/compiler/compile_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace specd::grammar {
namespace {

std::string KeyOf(const GrammarRequest& request) {
  return fmt::format("{} {} {} {} {}", static_cast<uint32_t>(request.kind),
                     static_cast<uint32_t>(request.whitespace),
                     static_cast<uint32_t>(request.key_order), request.lenient, request.text);
}

// Without memory for its text, the status has none.
absl::Status UnavailableNow(const char* why) {
  try {
    return absl::UnavailableError(
        fmt::format("the constraint could not be compiled now: {}; try again later", why));
  } catch (...) {
    return {absl::StatusCode::kUnavailable, ""};
  }
}

CompileResult Call(absl::FunctionRef<CompileResult()> compile) {
  try {
    return compile();
  } catch (const std::exception& error) {
    return UnavailableNow(error.what());
  } catch (...) {
    return UnavailableNow("an unknown error");
  }
}

absl::Status Exhausted(std::string_view text) {
  return absl::ResourceExhaustedError(absl::string_view(text.data(), text.size()));
}

// The answer to a caller. Without memory for its text, it has none.
absl::Status RefusalOf(const absl::Status& why, int64_t pause_ms) {
  const std::string_view text(why.message().data(), why.message().size());
  try {
    if (pause_ms == 0) return Exhausted(text);
    return Exhausted(fmt::format("{}; for {} s it is not tried again", text, pause_ms / 1000));
  } catch (...) {
    return {absl::StatusCode::kResourceExhausted, ""};
  }
}

}  // namespace

CompileCache::CompileCache(const CompileCacheOptions& options) : options_(options) {
  options_.memory->AddCache(this);
}

CompileCache::~CompileCache() { options_.memory->RemoveCache(this); }

bool CompileCache::Entry::IsUnused() const {
  return is_done && compiled.ok() && compiled.value().use_count() == 1;
}

int64_t CompileCache::NowMs() const {
  if (options_.now_ms) return options_.now_ms();
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CompileResult CompileCache::FindOrCompile(const GrammarRequest& request,
                                          absl::FunctionRef<CompileResult()> compile) {
  GrammarMemory& memory = *options_.memory;
  memory.MakeRoom(memory.room_bytes());
  const std::string key = KeyOf(request);
  std::shared_ptr<Entry> entry;
  {
    std::unique_lock lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) {
      entry = AddEntry(key);
    } else {
      entries_.splice(entries_.begin(), entries_, found->second);
      entry = *found->second;
      entry->last_use = memory.NextUse();
      if (!entry->is_done) return Wait(lock, *entry);
      if (entry->pause_ms == 0 || NowMs() < entry->retry_ms) return entry->compiled;
      entry->is_done = false;  // another try
    }
  }
  CompileResult compiled = Call(compile);
  Entries dropped;  // freed without the lock
  const std::lock_guard lock(mutex_);
  Finish(entry.get(), std::move(compiled));
  DropOldest(&dropped);
  return entry->compiled;
}

std::shared_ptr<CompileCache::Entry> CompileCache::AddEntry(const std::string& key) {
  auto entry = std::make_shared<Entry>();
  entry->key = key;
  entry->last_use = options_.memory->NextUse();
  const auto place = places_.emplace(key, entries_.end()).first;
  try {
    entries_.push_front(entry);
  } catch (...) {
    places_.erase(place);
    throw;
  }
  place->second = entries_.begin();
  return entry;
}

CompileResult CompileCache::Wait(std::unique_lock<std::mutex>& lock, const Entry& entry) {
  const auto is_done = [&entry] { return entry.is_done; };
  if (changed_.wait_for(lock, std::chrono::milliseconds(options_.wait_ms), is_done)) {
    return entry.compiled;
  }
  return Exhausted(fmt::format(
      "the same constraint is being compiled for another sequence, and {} ms passed; try again "
      "later",
      options_.wait_ms));
}

// Others wait for the entry, so a lack of memory for the words of a refusal must not leave it open.
void CompileCache::Finish(Entry* entry, CompileResult compiled) {
  const absl::StatusCode code = compiled.status().code();
  const bool is_late = code == absl::StatusCode::kDeadlineExceeded;
  const bool is_for_now = code == absl::StatusCode::kUnavailable;
  if (is_late) {
    entry->pause_ms = std::clamp(2 * entry->pause_ms, kFirstPauseMs, kPauseMsMax);
  } else if (!is_for_now) {
    entry->pause_ms = 0;
  }
  // A passing obstacle may be gone soon, so the next try need not wait for a long pause.
  const int64_t wait_ms = is_for_now ? std::min(entry->pause_ms, kFirstPauseMs) : entry->pause_ms;
  entry->retry_ms = NowMs() + wait_ms;
  if (is_late || is_for_now) compiled = RefusalOf(compiled.status(), wait_ms);
  entry->compiled = std::move(compiled);
  entry->is_done = true;
  changed_.notify_all();
  // The entry of a compile that once took too long stays, because it has the pause.
  if (is_for_now && entry->pause_ms == 0) Forget(*entry);
}

// The entry may be dropped already, and its key be another's.
void CompileCache::Forget(const Entry& entry) {
  const auto found = places_.find(entry.key);
  if (found == places_.end() || found->second->get() != &entry) return;
  entries_.erase(found->second);
  places_.erase(found);
}

std::optional<uint64_t> CompileCache::OldestUnused() {
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if ((*entry)->IsUnused()) return (*entry)->last_use;
  }
  return std::nullopt;
}

void CompileCache::DropUnused(uint64_t last_use) {
  std::shared_ptr<Entry> dropped;  // freed without the lock
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if ((*entry)->last_use != last_use) continue;
    if (!(*entry)->IsUnused()) return;
    dropped = *entry;
    Forget(*dropped);
    return;
  }
}

// A grammar grows as its states are met, so sizes are read anew. A grammar that is being compiled
// stays.
void CompileCache::DropOldest(Entries* dropped) {
  size_t size = 0;
  size_t count = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if ((*entry)->is_done) {
      size += (*entry)->key.size();
      if ((*entry)->compiled.ok()) size += (*entry)->compiled.value()->size_bytes();
    }
    ++count;
    const bool is_kept =
        !(*entry)->is_done || count == 1 || (size <= options_.bytes_max && count <= kEntriesMax);
    if (is_kept) {
      ++entry;
    } else {
      places_.erase((*entry)->key);
      dropped->splice(dropped->end(), entries_, entry++);
    }
  }
}

}  // namespace specd::grammar
