#include "runner/vocab_kernels-inl.h"

namespace spyre::runner {
const VocabKernels kVocabKernelsAvx512 = kKernels;
}  // namespace spyre::runner
