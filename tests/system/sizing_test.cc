// Sizing from a configuration alone, the report page and the trace, by the program as it is shipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "program.h"

namespace spyre::system_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string shape(const std::string& name) {
  return std::string(SPYRE_TEST_DATA) + "/sizing/" + name;
}

TEST(SizingCommand, AnswersFromTheFileAndFromItsFolder) {
  const json file =
      run({"inspect", shape("granite-8b") + "/config.json", "--batch", "32", "--context", "8192", "--format", "json"})
          .json();
  EXPECT_EQ(file["fits"], true);
  EXPECT_EQ(file["parameters"]["total"], 8170848256);
  const json folder =
      run({"inspect", shape("granite-8b"), "--batch", "32", "--context", "8192", "--format", "json"}).json();
  EXPECT_EQ(folder, file);
  const Outcome text = run({"inspect", shape("llama-70b"), "--cards", "8"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("It fits."));
  EXPECT_THAT(text.out, HasSubstr("on 8 cards"));
}

// With weights beside the configuration the flags still ask about the configuration alone.
TEST(SizingCommand, FlagsAskAboutAModelThatIsThere) {
  const json out = run({"inspect", golden("llama_gqa64"), "--batch", "4", "--format", "json"}).json();
  EXPECT_TRUE(out.contains("limits"));
  EXPECT_TRUE(run({"inspect", golden("llama_gqa64"), "--format", "json"}).json().contains("artifacts"));
}

// Weights that a run refuses are weights: what would be run is asked for, and refused; sizes come from the
// configuration.
TEST(SizingCommand, PyTorchWeightsAreNoConfigurationAlone) {
  const ScratchFolder folder;
  folder.write("config.json", read_file(shape("granite-8b") + "/config.json"));
  folder.write("pytorch_model.bin", "weights");
  const std::string model = folder.path().string();
  const Outcome outcome = run({"inspect", model});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("pytorch_model.bin is not read"));
  EXPECT_EQ(run({"inspect", model, "--batch", "4", "--format", "json"}).json()["parameters"]["total"], 8170848256);
}

TEST(SizingCommand, SaysWhatIsWrong) {
  const ScratchFolder folder;
  const auto refused = [&](const Arguments& arguments, int code, const std::string& what) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << what;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(what));
  };
  refused({"inspect", shape("granite-8b"), "--cards", "3"}, 1, "possible: 1, 2, 4");
  refused({"inspect", shape("granite-8b"), "--batch", "0"}, 2, "--batch");
  refused({"inspect", shape("granite-8b"), "--enforce-eager"}, 2, "--enforce-eager");
  refused({"inspect", shape("granite-8b"), "--platform", "cpu"}, 1, "cannot size");
  refused({"inspect", folder.write("broken.json", "{\"hidden_size\": 5")}, 1, "broken.json");
  refused({"inspect", shape("granite-8b"), "--report", "/nowhere/page.html"}, 1, "/nowhere/page.html");
}

TEST(ReportCommand, WritesAPageWithItsData) {
  const ScratchFolder folder;
  for (const std::string& model : {shape("minilm"), golden("llama_gqa64")}) {
    const std::string path = (folder.path() / "page.html").string();
    ASSERT_EQ(run({"inspect", model, "--report", path}).code, 0) << model;
    const std::string page = read_file(path), begin = R"(id="data">)";
    const size_t at = page.find(begin) + begin.size();
    const json data = json::parse(page.substr(at, page.find("</script>", at) - at));
    EXPECT_FALSE(data["size"]["tables"].empty());
    EXPECT_EQ(data["size"]["programs"].empty(), model == shape("minilm"));
    EXPECT_EQ(data["run"].is_null(), model == shape("minilm"));
  }
}

TEST(TraceFlag, WritesWhatAGenerationDid) {
  const ScratchFolder folder;
  const std::string path = (folder.path() / "trace.json").string();
  const Arguments arguments = {
      "generate", golden("llama_gqa64"), "--prompt-ids", prompt_of("llama_gqa64", 5), "--max-tokens", "3", "--format",
      "json"};
  Arguments traced = arguments;
  traced.insert(traced.end(), {"--trace", path});
  const json with = run(traced).json(), without = run(arguments).json();
  EXPECT_EQ(with["token_ids"], without["token_ids"]);
  const json trace = json::parse(read_file(path));
  int steps = 0;
  std::set<int> processes;
  for (const json& e : trace["traceEvents"]) {
    processes.insert(e["pid"].get<int>());
    steps += e["ph"] == "X" && e["pid"] == 2 && e["name"] == "step";
  }
  EXPECT_EQ(steps, 3);  // the prompt gives the first token
  EXPECT_EQ(processes, (std::set<int>{1, 2}));
  EXPECT_EQ(run({"generate", golden("llama_gqa64"), "--prompt-ids", "5", "--trace", "/nowhere/trace.json"}).code, 1);
}

}  // namespace
}  // namespace spyre::system_test
