#include "tests/support/pid_namespace.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kernels/core/check.h"

namespace specd {

namespace {

// Later children are in a new namespace. A process without the right to make one may do so in a
// user namespace of its own.
bool Unshare() { return unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0; }

int ExitStatusOf(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return EXIT_FAILURE;
  return WEXITSTATUS(status);
}

}  // namespace

void EnterPidNamespaceIfAsked() {
  if (std::getenv("SPECD_PEER_PID_NAMESPACE") == nullptr) return;
  SPECD_CHECK(Unshare());
  const pid_t child = fork();
  SPECD_CHECK(child >= 0);
  if (child != 0) _exit(ExitStatusOf(child));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// In a child, because it cannot be undone.
std::string WhyNoPidNamespace() {
  const pid_t child = fork();
  if (child == 0) {
    if (!Unshare()) _exit(errno);
    _exit(fork() >= 0 ? 0 : errno);  // also of the grandchild
  }
  const int error = child < 0 ? errno : ExitStatusOf(child);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace specd
