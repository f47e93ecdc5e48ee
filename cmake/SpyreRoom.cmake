# spyre_room(NAME [DEPS room...] [LIBS target...] [TEST_DEPS room...] [TEST_LIBS target...])
#
# One directory of src/ is one room: every .cc in it and in its sub-folders becomes the static library spyre_NAME, and
# every *_test.cc beside them becomes part of the program NAME_test. Not in it: *_test.cc, *_fuzz.cc, *_bench.cc, main.cc
# (each product adds its own), and whatever lies under a sub-folder with a CMakeLists.txt of its own (a room by itself).
# DEPS are the rooms it may include: the arrows of docs/architecture.md. Tests and benchmarks link these static
# libraries; the products (cmake/SpyreProducts.cmake) are put together from the same objects.
function(spyre_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS;TEST_DEPS;TEST_LIBS" ${ARGN})
  spyre_room_sources(${CMAKE_CURRENT_SOURCE_DIR} sources tests)
  if(NOT sources)
    add_library(spyre_${name} INTERFACE)
    set(kind INTERFACE)
  else()
    add_library(spyre_${name} STATIC ${sources})
    set(kind PUBLIC)
    add_dependencies(spyre_${name} spyre_build_id)
  endif()
  set_property(GLOBAL APPEND PROPERTY SPYRE_ROOMS ${name})
  target_link_libraries(spyre_${name} ${kind} spyre_options ${ROOM_LIBS})
  foreach(dep ${ROOM_DEPS})
    target_link_libraries(spyre_${name} ${kind} spyre_${dep})
  endforeach()
  if(SPYRE_BUILD_TESTS AND tests)
    spyre_test(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE spyre_${name} ${ROOM_TEST_LIBS})
    foreach(dep ${ROOM_TEST_DEPS})
      target_link_libraries(${name}_test PRIVATE spyre_${dep})
    endforeach()
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  endif()
endfunction()

# The .cc files of a room, tests apart.
function(spyre_room_sources directory sources_out tests_out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${directory}/*.cc)
  file(GLOB_RECURSE inner_rooms CONFIGURE_DEPENDS ${directory}/CMakeLists.txt)
  list(REMOVE_ITEM inner_rooms ${directory}/CMakeLists.txt)
  foreach(inner ${inner_rooms})
    get_filename_component(inner ${inner} DIRECTORY)
    foreach(source ${sources})
      string(FIND ${source} ${inner}/ at)
      if(at EQUAL 0)
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
  endforeach()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|_bench|/main)\\.cc$")
  set(${sources_out} ${sources} PARENT_SCOPE)
  set(${tests_out} ${tests} PARENT_SCOPE)
endfunction()

# spyre_test(TARGET SOURCE...): a GoogleTest program that knows where the committed test data lies.
function(spyre_test target)
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE spyre_options GTest::gmock GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE SPYRE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
                             SPYRE_GOLDEN_DATA="${CMAKE_SOURCE_DIR}/tests/golden/data")
endfunction()

# spyre_kernel_flags(ROOM): compiles the kernels of a room for their instruction sets. The suffix of a file names its set:
#   *_portable.cc  the baseline          *_avx2.cc         AVX2 + FMA + F16C
#   *_avx512.cc    F, BW, DQ, VL         *_avx512_bf16.cc  and vdpbf16ps        *_amx.cc  and AMX-BF16 tiles
# Everything in a file with a suffix lives in an anonymous namespace (or is a plain extern function): an inline or template
# function with external linkage compiled here could be the copy the linker keeps for everybody, and an old machine
# would die in it. The test KernelObjects.DefineNoWeakSymbols looks for such symbols with nm.
# -Wno-maybe-uninitialized: gcc 12's own AVX-512 header (_mm512_undefined_ps) trips it in every unmasked intrinsic.
function(spyre_kernel_flags room)
  file(GLOB sources CONFIGURE_DEPENDS *_portable.cc *_avx2.cc *_avx512.cc *_avx512_bf16.cc *_amx.cc)
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(avx512_bf16 ${avx512} -mavx512bf16)
  set(amx ${avx512_bf16} -mamx-tile -mamx-bf16)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(avx2)
    set(avx512)
    set(avx512_bf16)
    set(amx)
  endif()
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    foreach(isa avx512_bf16 avx512 avx2 amx portable)
      if(stem MATCHES "_${isa}$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>;${${isa}}")
        break()
      endif()
    endforeach()
  endforeach()
  if(SPYRE_BUILD_TESTS AND CMAKE_NM AND NOT SPYRE_SANITIZE)
    add_test(NAME ${room}.KernelObjects.DefineNoWeakSymbols
             COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/kernel_objects_test.sh ${CMAKE_NM} $<TARGET_OBJECTS:spyre_${room}>
             COMMAND_EXPAND_LISTS)
  endif()
endfunction()
