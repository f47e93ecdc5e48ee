// What to change so that a model fits, and what is worth knowing where it does: each line a sentence with its numbers.
#pragma once

#include <string>
#include <vector>

#include "platform/sizing.h"
#include "plugins/spyre/sizing/card_fit.h"

namespace spyre::sizing {

// "1, 2, 4, 8": numbers of cards that divide the model, up to those of one system.
std::string possible_cards(const ModelShape& shape);

// |fit| is the answer to |question|, which is complete. Longer contexts, larger batches and more cards are tried with
// the same intermediates.
std::vector<std::string> advice(const ModelShape& shape, const platform::SizingQuestion& question, const CardFit& fit);

}  // namespace spyre::sizing
