// Phase: every operator becomes device operations on buffers (lower/card_ops.h), each with its iteration
// (lower/iteration.h). Slices, transposes and regroupings of whole sticks become views of the buffer they read and cost
// nothing; what is no view is copied ("identity"). A value that the layouts re-lay gets one more buffer per layout,
// which insert_restickify fills. Graph outputs that no operation writes in place are copied to theirs.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// Fills |state|.plan; the number of device operations.
int64_t lower_operators(CardState& state);

}  // namespace spyre::compiler
