// StopSignals are the signals on which specd and specd-detok drain, for their mains.
//
// SIGTERM and SIGINT are; SIGHUP and SIGQUIT too, unless the process was started with the signal
// ignored, as nohup does. Block the set before a thread is made, and wait for it.
#pragma once

#include <csignal>

namespace specd {

inline sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  // A blocked signal would come although it is ignored.
  for (const int signal : {SIGHUP, SIGQUIT}) {
    struct sigaction action = {};
    const bool is_ignored =
        sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!is_ignored) sigaddset(&signals, signal);
  }
  return signals;
}

}  // namespace specd
