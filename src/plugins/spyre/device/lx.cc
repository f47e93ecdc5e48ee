#include "plugins/spyre/device/lx.h"

namespace spyre::device {

std::string_view to_string(LxReason reason) {
  switch (reason) {
    case LxReason::kNotPlanned:
      return "not planned";
    case LxReason::kResident:
      return "resident";
    case LxReason::kClonedIn:
      return "cloned in";
    case LxReason::kClonedOut:
      return "cloned out";
    case LxReason::kView:
      return "a view";
    case LxReason::kReadOnce:
      return "read once";
    case LxReason::kUnread:
      return "read by nobody";
    case LxReason::kMutated:
      return "mutated";
    case LxReason::kPartialSums:
      return "partial sums";
    case LxReason::kRestickifyInput:
      return "restickify input";
    case LxReason::kExternUser:
      return "used outside";
    case LxReason::kGatherOperand:
      return "gather operand";
    case LxReason::kPartialRead:
      return "read in part";
    case LxReason::kViewsDiffer:
      return "views differ";
    case LxReason::kTooLarge:
      return "too large";
    case LxReason::kNoRoom:
      return "no room";
  }
  return "";
}

}  // namespace spyre::device
