// Levels of single loggers, JSON lines, and what is refused.
#include "daemon/base/logging.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <simdjson.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace specd {
namespace {

// Stderr is a file while this lives.
class StderrFile {
 public:
  StderrFile() {
    std::string path = (std::filesystem::temp_directory_path() / "specd-log-XXXXXX").string();
    const int fd = mkstemp(path.data());
    REQUIRE(fd >= 0);
    path_ = path;
    saved_ = dup(STDERR_FILENO);
    REQUIRE(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    close(fd);
  }
  ~StderrFile() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    unlink(path_.c_str());
  }
  // Ends the logging.
  std::string Text() const {
    StopLogging();
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
  int saved_ = -1;
};

std::string ErrorOf(const LogOptions& options) {
  return std::string(SetUpLogging(options).message());
}

TEST_SUITE("unit") {
  TEST_CASE("each logger has a level of its own") {
    const StderrFile file;
    REQUIRE(SetUpLogging({.levels = "warn,attach=debug,detok=off"}).ok());
    Log("attach").debug("one");
    Log("attach").trace("no");
    Log("verify").info("no");
    Log("verify").warn("two");
    Log("detok").critical("no");
    const std::string text = file.Text();
    CHECK(text.find("debug attach  one\n") != std::string::npos);
    CHECK(text.find("warning verify  two\n") != std::string::npos);
    CHECK(text.find("no\n") == std::string::npos);
    CHECK(text.find('\033') == std::string::npos);  // a file is no terminal
  }

  TEST_CASE("a later level of all loggers takes the place of earlier ones") {
    const StderrFile file;
    REQUIRE(SetUpLogging({.levels = "attach=debug,error"}).ok());
    Log("attach").warn("no");
    Log("attach").error("yes");
    CHECK(file.Text().find("no") == std::string::npos);
  }

  TEST_CASE("json lines are objects whatever the message holds") {
    const std::string message = "quote \" slash \\ tab \t line \n bytes \xff\xc3\xa4 end";
    const StderrFile file;
    REQUIRE(SetUpLogging({.levels = "info", .format = "json"}).ok());
    Log("egress").warn("{}", message);
    Log("egress").warn("{}", std::string(20'000, '"'));
    const std::string text = file.Text();
    std::istringstream lines(text);
    std::string line;
    REQUIRE(std::getline(lines, line));
    simdjson::dom::parser parser;
    simdjson::dom::element object;
    REQUIRE(parser.parse(line).get(object) == simdjson::SUCCESS);
    CHECK(std::string_view(object["level"]) == "warning");
    CHECK(std::string_view(object["logger"]) == "egress");
    CHECK(std::string_view(object["message"]) == "quote \" slash \\ tab ? line ? bytes ??? end");
    REQUIRE(std::getline(lines, line));
    REQUIRE(parser.parse(line).get(object) == simdjson::SUCCESS);
    CHECK_FALSE(std::getline(lines, line));
  }

  TEST_CASE("unknown levels, loggers and formats are refused by name") {
    CHECK(ErrorOf({.levels = "loud"}).find("log_level = loud") != std::string::npos);
    CHECK(ErrorOf({.levels = "info,attach=loud"}).find("log_level = loud") != std::string::npos);
    CHECK(ErrorOf({.levels = "info,atach=info"}).find("atach=info") != std::string::npos);
    CHECK(ErrorOf({.levels = ""}).find("log_level = ") != std::string::npos);
    CHECK(ErrorOf({.levels = "info", .format = "xml"}).find("log_format = xml") !=
          std::string::npos);
  }

  TEST_CASE("of 50,000 lines that one peer causes, few are written, and the rest is told") {
    const StderrFile file;
    REQUIRE(SetUpLogging({}).ok());
    for (int i = 0; i < 50'000; ++i) {
      LogOfPeer({"attach", spdlog::level::warn, "flood of the test", 3}, "line {}", i);
    }
    const std::string text = file.Text();
    CHECK(std::count(text.begin(), text.end(), '\n') >= 5);
    // A machine that took longer than a window would have some more.
    CHECK(std::count(text.begin(), text.end(), '\n') < 100);
  }
}

}  // namespace
}  // namespace specd
