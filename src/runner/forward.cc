#include "runner/forward.h"

#include "base/error.h"

namespace spyre::runner {

void ModelRunner::set_layer_tap(LayerTap tap) {
  if (tap) throw_error(ErrorCode::kUnsupported, "this platform does not show the hidden states of its layers");
}

}  // namespace spyre::runner
