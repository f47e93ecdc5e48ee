# spyre_text_rust: the static library that cargo makes of rust/text.
#
# Always the release profile and never instrumented: sanitizer presets link the same archive. Cargo works in a folder
# outside the build folder, shared by all presets, so that a clean build does not pay for the crates again; the archive
# is copied here because only this folder's build knows when its own copy is old.
set(SPYRE_CARGO_TARGET_DIR ${CMAKE_SOURCE_DIR}/.cache/cargo-target CACHE PATH "Where cargo builds rust/text")
set(minimum_cargo 1.85)

find_program(SPYRE_CARGO cargo HINTS $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin)
if(NOT SPYRE_CARGO)
  message(FATAL_ERROR "cargo ${minimum_cargo} or newer is needed for rust/text: install Debian's cargo-web and "
                      "rustc-web, or use rustup")
endif()
execute_process(COMMAND ${SPYRE_CARGO} --version OUTPUT_VARIABLE cargo_version RESULT_VARIABLE cargo_failed)
string(REGEX MATCH "[0-9]+\\.[0-9]+" cargo_version "${cargo_version}")
if(cargo_failed OR cargo_version VERSION_LESS minimum_cargo)
  message(FATAL_ERROR "${SPYRE_CARGO} is version '${cargo_version}'; rust/text needs ${minimum_cargo} or newer: install "
                      "Debian's cargo-web and rustc-web and set SPYRE_CARGO")
endif()

set(crate ${CMAKE_SOURCE_DIR}/rust/text)
set(archive ${CMAKE_CURRENT_BINARY_DIR}/libspyre_text_rust.a)
file(GLOB_RECURSE crate_sources CONFIGURE_DEPENDS ${crate}/src/*.rs)
add_custom_command(
  OUTPUT ${archive}
  COMMAND ${CMAKE_COMMAND} -E env --unset=RUSTFLAGS --unset=CARGO_ENCODED_RUSTFLAGS --unset=CARGO_BUILD_TARGET
          CARGO_TARGET_DIR=${SPYRE_CARGO_TARGET_DIR} CARGO_NET_RETRY=5
          ${SPYRE_CARGO} build --quiet --release --locked --manifest-path ${crate}/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E copy ${SPYRE_CARGO_TARGET_DIR}/release/libspyre_text.a ${archive}
  DEPENDS ${crate_sources} ${crate}/Cargo.toml ${crate}/Cargo.lock
  COMMENT "Building rust/text with cargo"
  VERBATIM)
add_custom_target(spyre_text_rust_build DEPENDS ${archive})

add_library(spyre_text_rust STATIC IMPORTED GLOBAL)
set_target_properties(spyre_text_rust PROPERTIES IMPORTED_LOCATION ${archive})
target_link_libraries(spyre_text_rust INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(spyre_text_rust spyre_text_rust_build)
