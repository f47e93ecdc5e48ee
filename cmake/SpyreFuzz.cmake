# spyre_fuzzer(NAME SOURCE DEPS...)
#
# The libFuzzer program NAME (by convention THING_fuzz, beside the code it feeds; seeds in tests/data/fuzz/THING), linked
# with the rooms DEPS. Without SPYRE_BUILD_FUZZERS (the preset `fuzz`) it makes nothing. libFuzzer is part of clang: the
# preset names clang 19.
include_guard(GLOBAL)

if(SPYRE_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SPYRE_BUILD_FUZZERS needs clang, not ${CMAKE_CXX_COMPILER_ID}: use the preset 'fuzz'")
  endif()
  # Coverage in every room: the fuzzer steers by what the code under test executes.
  target_compile_options(spyre_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(spyre_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(spyre_fuzzer name source)
  if(NOT SPYRE_BUILD_FUZZERS)
    return()
  endif()
  add_executable(${name} ${source})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  foreach(dep ${ARGN})
    target_link_libraries(${name} PRIVATE spyre_${dep})
  endforeach()
endfunction()
