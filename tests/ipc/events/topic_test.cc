// The topics of published messages, and what can be subscribed to.
#include <doctest/doctest.h>

#include <string>

#include "ipc/events/token_event.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("events: a text topic ends with its delimiter") {
    CHECK(TextTopic("req-1") == "text/req-1/");
  }

  TEST_CASE("events: exactly the beginnings of the three topics can be subscribed to") {
    for (const std::string& topic : {std::string("tokens"), std::string("heartbeat"),
                                     TextTopic("a/b"), TextTopic(std::string(128, 'r'))}) {
      for (size_t size = 0; size <= topic.size(); ++size) {
        CAPTURE(topic.substr(0, size));
        CHECK(IsTopicPrefix(topic.substr(0, size)));
      }
    }
    for (const std::string& text :
         {std::string("x"), std::string("tokens/"), std::string("heartbeats"), std::string("texts"),
          std::string("abort"), std::string("alive"), "text/" + std::string(129, 'r'),
          TextTopic(std::string(129, 'r')), TextTopic(std::string(128, 'r')) + "x"}) {
      CAPTURE(text);
      CHECK_FALSE(IsTopicPrefix(text));
    }
  }
}

}  // namespace
}  // namespace specd
