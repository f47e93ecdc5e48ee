#include "runner/vocab_kernels.h"

namespace spyre::runner {

const VocabKernels& vocab_kernels(const CpuFeatures& features) {
#if defined(__x86_64__)
  if (features.avx512) return kVocabKernelsAvx512;
  if (features.avx2) return kVocabKernelsAvx2;
#else
  (void)features;
#endif
  return kVocabKernelsPortable;
}

}  // namespace spyre::runner
