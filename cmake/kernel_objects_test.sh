#!/bin/sh
# kernel_objects_test.sh NM OBJECT...
# Fails when an object compiled for one instruction set (by its file suffix)
#   - defines a symbol that the linker may choose for other files too: weak (W, V) or unique (u). Personality references
#     (DW.ref.*) are data and harmless.
#   - has code that runs before a kernel was chosen for the machine: a function with external linkage that is no kernel
#     (kernels take one GemmCall; the others stand in constant tables), or an initialiser of static data.
nm=$1
shift
checked=0
status=0
complain() {  # WHAT SYMBOLS
  [ -z "$2" ] && return
  echo "$object $1:"
  echo "$2"
  status=1
}
for object in "$@"; do
  case $object in
    *_avx2.cc.o | *_avx512.cc.o | *_avx512_bf16.cc.o | *_amx.cc.o) ;;
    *) continue ;;
  esac
  checked=$((checked + 1))
  symbols=$("$nm" -C "$object")
  complain "defines symbols that other files may be linked to" \
    "$(echo "$symbols" | grep -E '^[0-9a-f]* +[WVu] ' | grep -vF ' DW.ref.')"
  complain "has functions that are no kernels; a machine without its instructions could run them" \
    "$(echo "$symbols" | grep -E ' T ' | grep -vE '\(spyre::kernels::GemmCall const&\)$')"
  complain "initialises static data at the start of the program" "$(echo "$symbols" | grep -E '_GLOBAL__sub_I|__static_initialization')"
done
if [ "$checked" -eq 0 ]; then
  echo "no object of an instruction set among $# objects: the suffix rule and this script disagree"
  exit 1
fi
exit $status
