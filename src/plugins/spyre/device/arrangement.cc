#include "plugins/spyre/device/arrangement.h"

namespace spyre::device {

std::string_view to_string(Arrangement arrangement) {
  switch (arrangement) {
    case Arrangement::kStandard:
      return "standard";
    case Arrangement::kDl16ToFp32:
      return "staggered by dl16_to_fp32";
    case Arrangement::kFp32ToDl16:
      return "staggered by fp32_to_dl16";
    case Arrangement::kExx2:
      return "exx2";
  }
  return "?";
}

}  // namespace spyre::device
