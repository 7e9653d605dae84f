// A peer in a pid namespace of its own, as a process in another container is: for checks of what
// processes there can still share. Its main enters one before it has a second thread.
#pragma once

#include <string>

namespace specd {

// In the environment of a program that calls EnterPidNamespaceIfAsked.
inline constexpr char kInPidNamespace[] = "SPECD_PEER_PID_NAMESPACE=1";

// Called by main before anything else: where that is in the environment, what goes on is the first
// process of a new namespace, and dies with the one that was called.
void EnterPidNamespaceIfAsked();

// Empty where this process may have such children, and otherwise why not. From any thread.
std::string WhyNoPidNamespace();

}  // namespace specd
