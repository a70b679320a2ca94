export PYTHONPATH=src:gpu_libs:. AIRFL_CACHE=$PWD/gpu_data OMP_NUM_THREADS=3
S=$1
cp -r gpu_out/a gpu_out/d gpu_out/e gpu_out/f gpu_out/g $OUT/
go() { d=$1; shift; timeout $((S+75)) python -m experiments.shield --out $OUT/$d --device cuda --seconds $S "$@" > /tmp/$d.txt 2>&1; tail -c 300 /tmp/$d.txt; }
go a --parts spoilt &
go d --parts curves --devices 6000 --models softmax &
go e --parts curves --devices 6000 --models wavelets --antennas 1,4,16 &
go f --parts curves --devices 6000 --models wavelets --antennas 100 &
go g --parts curves --devices 50,500 &
wait
mkdir -p $OUT/r; for d in a d e f g; do cp $OUT/$d/shield.csv $OUT/r/$d.csv; done; rm -rf $OUT/a $OUT/d $OUT/e $OUT/f $OUT/g; wc -l $OUT/r/*
