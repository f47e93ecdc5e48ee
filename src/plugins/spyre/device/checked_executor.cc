#include "plugins/spyre/device/checked_executor.h"

#include "base/error.h"

namespace spyre::device {
void run_checked(const Launch&, std::byte*, int64_t, const attention::StepTables*, DotOrder) {
  throw_error(ErrorCode::kUnsupported, "checked mode");
}
}  // namespace spyre::device
