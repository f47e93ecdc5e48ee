#include "runner/vocab_kernels-inl.h"

namespace spyre::runner {
const VocabKernels kVocabKernelsPortable = kKernels;
}  // namespace spyre::runner
