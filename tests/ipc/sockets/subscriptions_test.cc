// Subscriptions: lookups agree with a search over all prefixes, and a peer's number is bounded.
#include "ipc/sockets/subscriptions.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("subscriptions: a lookup finds those that brute force finds, each once") {
    std::mt19937 random(7);
    const auto draw = [&random](size_t length_max) {
      std::string text(random() % (length_max + 1), 'a');
      for (char& letter : text) letter = static_cast<char>('a' + random() % 2);
      return text;
    };
    std::array<Subscriber, 5> all;
    Subscriptions subscriptions({});
    for (int step = 0; step < 20000; ++step) {
      Subscriber* const one = &all[random() % all.size()];
      const std::string prefix = draw(5);
      if (random() % 100 == 0) {
        subscriptions.RemoveAll(one);
        CHECK(one->prefixes.empty());
      } else if (one->prefixes.contains(prefix)) {
        subscriptions.Remove(prefix, one);
      } else {
        REQUIRE(subscriptions.Admits(prefix, *one));
        subscriptions.Add(prefix, one);
      }
      const std::string topic = draw(8);
      std::vector<Subscriber*> found;
      subscriptions.Find(topic, &found);
      std::vector<Subscriber*> expected;
      for (Subscriber& each : all) {
        if (std::any_of(each.prefixes.begin(), each.prefixes.end(),
                        [&](const std::string& text) { return topic.starts_with(text); })) {
          expected.push_back(&each);
        }
      }
      std::sort(found.begin(), found.end());
      REQUIRE(found == expected);
    }
  }

  TEST_CASE("subscriptions: too long, too many, or of no topic is refused") {
    Subscriptions subscriptions(
        {.admits = [](std::string_view prefix) { return !prefix.starts_with("z"); },
         .prefixes_max = 2});
    Subscriber one;
    Subscriber other;
    CHECK_FALSE(subscriptions.Admits("z", one));
    CHECK(subscriptions.Admits(std::string(Subscriptions::kTopicBytesMax, 'a'), one));
    CHECK_FALSE(subscriptions.Admits(std::string(Subscriptions::kTopicBytesMax + 1, 'a'), one));
    subscriptions.Add("a", &one);
    subscriptions.Add("b", &one);
    CHECK_FALSE(subscriptions.Admits("c", one));
    CHECK(subscriptions.Admits("c", other));
    subscriptions.Remove("a", &one);
    CHECK(subscriptions.Admits("c", one));
  }
}

}  // namespace
}  // namespace specd
