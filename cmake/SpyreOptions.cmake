# What every target is compiled with. The baseline is x86-64-v2, so that one build runs on any server of the
# last decade; faster instruction sets are chosen at run time (see src/plugins/spyre/kernels).
add_library(spyre_options INTERFACE)
target_compile_options(spyre_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(spyre_options INTERFACE -march=x86-64-v2 -mtune=generic)
endif()
target_include_directories(spyre_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# fmt and spdlog from their compiled libraries: their header-only forms cost ten times the compile time.
target_compile_definitions(spyre_options INTERFACE SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL)

if(SPYRE_SANITIZE)
  target_compile_options(spyre_options INTERFACE -fsanitize=${SPYRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(spyre_options INTERFACE -fsanitize=${SPYRE_SANITIZE})
endif()

find_program(SPYRE_CCACHE ccache)
if(SPYRE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SPYRE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${SPYRE_CCACHE})
endif()
find_program(SPYRE_MOLD mold)
if(SPYRE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
