// docs/ops.md, written from the operator table: the page cannot say anything that the checks do not.
#pragma once

#include <string>

#include "base/export.h"

namespace spyre::graph {

SPYRE_API std::string operators_page();  // Markdown

}  // namespace spyre::graph
