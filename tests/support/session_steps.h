// StepSession runs a session as a test does: a whole round or call at a time.
//
// The daemon runs pieces, with other sessions between them (VerifyLoop). The verify thread's.
#pragma once

namespace specd {

// False if there was nothing to take, or no room for the events of a round.
template <class SessionPointer>
bool StepSession(const SessionPointer& session) {
  const bool worked = session->StepPiece(/*is_alone=*/true);
  while (session->is_between_pieces()) session->StepPiece();
  return worked;
}

}  // namespace specd
