#include "tools/toy_engine/answer_texts.h"

#include "specd/specd.h"

namespace specd::toy {

const char* FinishName(uint32_t reason) {
  switch (reason) {
    case SPECD_FINISH_STOP:
      return "stop";
    case SPECD_FINISH_LENGTH:
      return "length";
    case SPECD_FINISH_ABORT:
      return "abort";
    case SPECD_FINISH_ERROR:
      return "error";
    default:
      return "none";
  }
}

const char* StatusText(uint32_t status) {
  switch (status) {
    case SPECD_STATUS_BAD_DISTRIBUTION:
      return "a row without a distribution";
    case SPECD_STATUS_UNKNOWN_SEQUENCE:
      return "unknown sequence";
    case SPECD_STATUS_INVALID:
      return "a row index, a kind or a count out of range";
    case SPECD_STATUS_DEVICE_ERROR:
      return "the verifying device failed";
    default:
      return "an unknown status";
  }
}

}  // namespace specd::toy
