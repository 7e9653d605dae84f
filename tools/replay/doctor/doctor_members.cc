#include "tools/replay/doctor/doctor_members.h"

#include <fmt/format.h>

#include "tools/replay/doctor/findings.h"
#include "tools/replay/json_text.h"

namespace specd::replay {

std::string AcceptanceMembers(const AcceptanceSum& sum) {
  const bool is_known = sum.num_known > 0;
  return fmt::format(
      "\"reached\": {}, \"accepted\": {:.0f}, \"known\": {}, \"accepted_of_known\": {:.0f}, "
      "\"expected\": {}, \"error\": {}",
      sum.count, sum.accepted, sum.num_known, sum.accepted_of_known,
      is_known ? JsonNumber(sum.expected_rate()) : "null",
      is_known ? JsonNumber(sum.error()) : "null");
}

std::string DoctorMembers(const Doctor& doctor) {
  std::string findings;
  for (const Finding& finding : FindingsOf(doctor, {})) {
    findings += fmt::format("{}{{\"fault\": {}, \"sentence\": {}}}", findings.empty() ? "" : ", ",
                            finding.is_fault, JsonString(finding.sentence));
  }
  std::string places;
  for (const Group& group : doctor.Places()) {
    places += fmt::format("{}{{\"place\": {}, {}}}", places.empty() ? "" : ", ", group.label,
                          AcceptanceMembers(group.sum));
  }
  return fmt::format(", \"findings\": [{}], \"acceptance\": {{{}}}, \"places\": [{}]", findings,
                     AcceptanceMembers(doctor.all()), places);
}

}  // namespace specd::replay
