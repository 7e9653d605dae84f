// EnterPidNamespaceIfAsked puts a peer into a pid namespace of its own for tests of sharing between
// containers. The peer's main calls it before there is a second thread.
#pragma once

#include <string>

namespace specd {

// An entry of the environment of a program that calls EnterPidNamespaceIfAsked.
inline constexpr char kInPidNamespace[] = "SPECD_PEER_PID_NAMESPACE=1";

// main calls this first. If the entry is in the environment, the first process of a new namespace
// continues, and dies with the process that called.
void EnterPidNamespaceIfAsked();

// Empty if this process may have such children, and otherwise the reason. From any thread.
std::string WhyNoPidNamespace();

}  // namespace specd
