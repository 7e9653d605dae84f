// Errors keep what they know: as a status, over the wire, and by name.
#include "ipc/base/error.h"

#include <doctest/doctest.h>

#include <string>

#include "ipc/control/control.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("error: an error keeps its code, field and text over the wire") {
    const absl::Status status = MakeError(SPECD_ERROR_VOCABULARY, "vocab_size", "does not fit");
    const ErrorReply reply = MakeErrorReply(status);
    CHECK(reply.code == SPECD_ERROR_VOCABULARY);
    CHECK(reply.field == "vocab_size");
    CHECK(reply.text == "does not fit");
    const absl::Status back = StatusFromReply(reply);
    CHECK(back == status);
    // A text over its bound is cut, so that an error can always be sent.
    const ErrorReply longest = MakeErrorReply(
        MakeError(SPECD_ERROR_INTERNAL, std::string(100, 'f'), std::string(9999, 't')));
    CHECK(EncodeReply(longest, 1).ok());
    // Statuses of libraries find the nearest code.
    CHECK(MakeErrorReply(absl::ResourceExhaustedError("x")).code == SPECD_ERROR_EXHAUSTED);
    CHECK(MakeErrorReply(absl::UnknownError("x")).code == SPECD_ERROR_INTERNAL);
    // A code that no version knows is an error all the same.
    CHECK_FALSE(StatusFromReply({12345, "", "x"}).ok());
    CHECK_FALSE(StatusFromReply({0, "", "x"}).ok());
  }

  TEST_CASE("error: every code of specd.h has its name") {
    CHECK(std::string(ErrorCodeName(-7)) == "SPECD_ERROR_REGION");
    CHECK(std::string(ErrorCodeName(0)) == "SPECD_OK");
    CHECK(std::string(ErrorCodeName(2)) == "SPECD_EMPTY");
    for (int code = -13; code < 0; ++code) {
      CHECK(ErrorCodeOf(MakeError(code, "", "x")) == code);
      CHECK((code == -12) == (std::string(ErrorCodeName(code)) == "SPECD_ERROR_INTERNAL"));
    }
    CHECK(std::string(ErrorCodeName(-999)) == "SPECD_ERROR_INTERNAL");
  }
}

}  // namespace
}  // namespace specd
