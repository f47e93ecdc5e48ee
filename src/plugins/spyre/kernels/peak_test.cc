#include "plugins/spyre/kernels/peak.h"

#include <gtest/gtest.h>

namespace spyre::kernels {
namespace {

TEST(Peak, MeasuresWhatTheMachineHasAndNothingElse) {
  const CpuFeatures here = CpuFeatures::detected();
  for (PeakKind kind :
       {PeakKind::kMulAddXmm, PeakKind::kFmaYmm, PeakKind::kFmaZmm, PeakKind::kDotBf16, PeakKind::kTileBf16}) {
    const double rate = measure_peak_gflops(kind, 1, 0.001);
    EXPECT_EQ(rate > 0, can_measure(kind, here)) << to_string(kind) << ": " << rate << " GFLOP/s";
  }
}

TEST(Peak, StreamReaderReadsWithAnyNumberOfThreads) {
  const StreamReader reader(1 << 20);
  for (int threads : {1, 2, 3}) EXPECT_GT(reader.measure(threads), 0.0);
}

}  // namespace
}  // namespace spyre::kernels
