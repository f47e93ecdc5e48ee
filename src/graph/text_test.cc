#include "graph/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kMlp = R"(graph mlp {
  input %x : f16[@4,576]
  input %batch : batch
  param %gate_up : f16[576,3072]
  param %down : f16[1536,576] grouped_int
  state %kv : kv f16[3,64]
  %0 : f16[@4,3072] = matmul(%x, %gate_up)
  %1 : f16[@4,1536] = slice(%0) {axis=1, size=1536}
  %2 : f16[@4,1536] = slice(%0) {axis=1, size=1536, start=1536}
  %3 : f16[@4,1536] = silu(%1)
  %4 : f16[@4,1536] = mul(%3, %2)
  %5 : f32[@4,576] = matmul(%4, %down) {dtype="f32"}
  %6 : f32[@4,576] = scale(%5) {factor=1e-05}
  return %6, %4
}
)";

std::string parse_error(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Text, PrintsWhatItParsed) {
  EXPECT_EQ(print(parse(kMlp)), kMlp);
}

TEST(Text, InfersTypesThatAreLeftOutAndSkipsComments) {
  const Graph graph =
      parse("# a comment\n\ngraph g { # another\n input %x : f16[@4,8]\n%y = neg(%x)\t\n return %y\n}\r\n# end");
  EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "f16[@4,8]");
}

TEST(Text, TakesANegativeAxisAsTheAxisItMeans) {
  const Graph graph = parse("graph g {\n input %x : f16[4,8]\n %y = slice(%x) {axis=-1, size=3}\n return %y\n}");
  EXPECT_EQ(graph.ops[0].int_attr("axis"), 1);
  EXPECT_EQ(graph.ops[0].int_attr("start"), 0) << "the default";
}

TEST(Text, CanonicalTextForgetsNamesAndNothingElse) {
  const auto text = [](std::string_view a, std::string_view b, std::string_view factor) {
    return canonical_text(
        parse(fmt::format("graph {0} {{\n input %{0} : f16[@4,8]\n param %{1} : f16[8,8]\n %x{0} = matmul(%{0}, %{1})\n"
                          " %z = scale(%x{0}) {{factor={2}}}\n return %z\n}}",
                          a, b, factor)));
  };
  EXPECT_EQ(text("a", "b", "2"), text("b", "a", "2.0"));
  EXPECT_NE(text("a", "b", "2"), text("a", "b", "2.0000001"));
  EXPECT_EQ(canonical_text(parse(text("a", "b", "2"))), text("a", "b", "2"));
}

TEST(Text, FloatsRoundTripExactly) {
  for (const double value : {0.1, 1.0 / 3.0, -0.0, 1e-38, 3.4028234663852886e38, 5e-324, 16777217.0}) {
    Builder b;
    b.output(b.offset(b.input("x", Type::tensor(DType::kF32, std::vector<int64_t>{2})), value));
    const Graph graph = parse(print(b.finish()));
    EXPECT_EQ(std::signbit(graph.ops[0].float_attr("value")), std::signbit(value));
    EXPECT_EQ(graph.ops[0].float_attr("value"), value);
  }
}

TEST(Text, ErrorsNameTheLine) {
  const auto body = [](std::string_view line) {
    return parse_error(fmt::format("graph g {{\n  input %x : f16[@4,8]\n  {}\n  return %x\n}}\n", line));
  };
  EXPECT_THAT(body("%y = matmull(%x, %x)"), HasSubstr("line 3: unknown operator 'matmull'; did you mean matmul"));
  EXPECT_THAT(body("%y = neg(%z)"), HasSubstr("line 3: %z is not defined"));
  EXPECT_THAT(body("%x = neg(%x)"), HasSubstr("line 3: value %x is defined twice"));
  EXPECT_THAT(body("%y = neg(%x, %x)"), HasSubstr("line 3: neg takes 1 operands, got 2"));
  EXPECT_THAT(body("%y : f16[4,8] = neg(%x)"), HasSubstr("line 3: neg gives f16[@4,8], the text says f16[4,8]"));
  EXPECT_THAT(body("%y = neg(%x) {a=1}"), HasSubstr("line 3: neg has no attribute 'a'"));
  EXPECT_THAT(body("%y = scale(%x)"), HasSubstr("line 3: scale needs the attribute 'factor'"));
  EXPECT_THAT(body("%y = scale(%x) {factor=2, factor=3}"), HasSubstr("line 3: an attribute is given twice"));
  EXPECT_THAT(body("%y = slice(%x) {axis=1, axis=1, size=2}"), HasSubstr("given twice"));
  EXPECT_THAT(body("%y = scale(%x) {factor=inf}"), HasSubstr("must be finite in fp32"));
  EXPECT_THAT(body("%y = scale(%x) {factor=1e300}"), HasSubstr("must be finite in fp32"));
  EXPECT_THAT(body("%y = slice(%x) {axis=1.5, size=2}"), HasSubstr("line 3: expected ','"));
  EXPECT_THAT(body("%y = slice(%x) {axis=99999999999999999999, size=2}"), HasSubstr("line 3: expected an integer"));
  EXPECT_THAT(body("%y = convert(%x) {dtype=\"f16}"), HasSubstr("line 3: a string is not closed"));
  EXPECT_THAT(body("input %y : f16[1,2,3,4,5,6,7]"), HasSubstr("line 3: a type has at most 6 dimensions"));
  EXPECT_THAT(body("input %y : f16[0]"), HasSubstr("line 3: type f16[0]: each extent"));
  EXPECT_THAT(body("input %y : f16[1099511627776,2]"), HasSubstr("their product must be in 1 .. 1099511627776"));
  EXPECT_THAT(body("input %y : f16[@2,@2]"), HasSubstr("2 dimensions are rows"));
  EXPECT_THAT(body("input %y : i64[2]"), HasSubstr("elements must be f32, f16, bf16 or i32"));
  EXPECT_THAT(body("input %y : q8[2]"), HasSubstr("line 3: unknown dtype 'q8'"));
  EXPECT_THAT(body("input %y : kv f16[2]"), HasSubstr("a kv cache is [kv heads, head size]"));
  EXPECT_THAT(body("param %y : f16[@2]"), HasSubstr("must be a tensor without rows"));
  EXPECT_THAT(body("param %y : f16[2] int4"), HasSubstr("unknown encoding 'int4'"));
  EXPECT_THAT(body("state %y : f16[2,2]"), HasSubstr("must have a state type"));
  EXPECT_THAT(body("frobnicate"), HasSubstr("line 3: unknown statement 'frobnicate'"));
  EXPECT_THAT(parse_error("graph g {\n"), HasSubstr("line 1: the graph is not closed"));
  EXPECT_THAT(parse_error(""), HasSubstr("line 0: the graph is not closed"));
  EXPECT_THAT(parse_error("graph g {\nreturn\n}\nx"), HasSubstr("line 4: text after the graph"));
  EXPECT_THAT(parse_error("graph g {\nreturn\nreturn\n}"), HasSubstr("line 3: expected '}'"));
}

// Every prefix, and thousands of damaged copies, of a good text: an Error or a graph that round-trips, never anything
// else.
TEST(Text, SurvivesDamagedText) {
  const auto feed = [](const std::string& text) {
    try {
      const std::string printed = print(parse(text));
      EXPECT_EQ(print(parse(printed)), printed);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  };
  const std::string good(kMlp);
  for (size_t length = 0; length < good.size(); ++length) feed(good.substr(0, length));
  std::mt19937 random(7);
  const std::string_view alphabet("%@,:=(){}[]\"#-.0129axf \n\0\xff", 27);
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, good.substr(random() % good.size(), random() % 16));
          break;
      }
    }
    feed(text);
  }
}

}  // namespace
}  // namespace spyre::graph
