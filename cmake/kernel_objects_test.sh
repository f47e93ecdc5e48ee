#!/bin/sh
# kernel_objects_test.sh NM OBJECT...
# Fails when an object compiled for one instruction set (by its file suffix) defines a symbol that the linker may choose for
# other files too: weak (W, V) or unique (u). Personality references (DW.ref.*) are data and harmless.
nm=$1
shift
checked=0
status=0
for object in "$@"; do
  case $object in
    *_avx2.cc.o | *_avx512.cc.o | *_avx512_bf16.cc.o | *_amx.cc.o) ;;
    *) continue ;;
  esac
  checked=$((checked + 1))
  shared=$("$nm" "$object" | awk '$(NF - 1) ~ /^[WVu]$/ && $NF !~ /^DW\.ref\./')
  if [ -n "$shared" ]; then
    echo "$object defines symbols that other files may be linked to:"
    echo "$shared"
    status=1
  fi
done
if [ "$checked" -eq 0 ]; then
  echo "no object of an instruction set among $# objects: the suffix rule and this script disagree"
  exit 1
fi
exit $status
