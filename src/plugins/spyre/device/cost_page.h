// docs/cost.md, printed from the figures and the anchors.
#pragma once

#include <string>

namespace spyre::device {

std::string cost_page();

}  // namespace spyre::device
