#include "runner/vocab_kernels-inl.h"

namespace spyre::runner {
const VocabKernels kVocabKernelsAvx2 = kKernels;
}  // namespace spyre::runner
