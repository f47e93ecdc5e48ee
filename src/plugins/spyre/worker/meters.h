// What the machine can do, measured when a report asks for it: the bars that `spyre bench` puts its figures beside.
// Each call measures anew, on threads of its own; it takes some 20 ms per figure and, for a stream, a buffer of the
// size that is asked for.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "plugins/spyre/device/device.h"

namespace spyre::worker {

// Topics (|topic| without "meters/"):
//   peak            GFLOP/s of the instruction that the GEMM kernel in use is made of, all threads of the device
//   stream/<bytes>  GB/s (1e9) read from a buffer of that size, all threads
//   all/<bytes>     the stream and every peak of this machine, with one thread and with all
// Null for another topic. Throws Error(kInvalidArgument) for a size that is no number of at least 1,
// Error(kResourceExhausted) when the buffer cannot be had.
nlohmann::json measure_meters(std::string_view topic, const device::SoftwareDevice& device, DType dtype);

}  // namespace spyre::worker
